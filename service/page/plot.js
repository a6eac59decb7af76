// Plots on a canvas: lines, bars, a cursor with readout, zoom.
//
// A figure is {x, y, lines, bars, handle}: x = {name, unit, range, isLog}, y = {name, unit, range, digits};
// lines: [{name, color, points: [[x, y], ..], dash?, isStep?}]; bars: [{x0, x1, y, color, name}];
// handle: {y, move(value), done()}, a horizontal line that can be dragged. A bar may begin at y0 instead of 0.
//
// In a figure with `plane`, x and y are the parts of a complex number, to the same scale, and the cursor is a place on a
// line: {circles: [{x, y, radius, name, color}], textAt(line, i)}.

import { fixed } from "./dsp.js";

const colors = new Map(); // cached, because a style query makes the browser compute all styles

function color(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(name);
}

// Called when the theme changes.
export function forgetColors() { colors.clear(); }

const MARGIN = { left: 46, right: 10, bottom: 34 };
const LEGEND_ROW = 14;
const GRIP = 10; // pixels around a handle
const LEAST_DRAG = 12; // pixels that a zoom spans at least
const LOG_TICKS = [1, 2, 5].flatMap((digit) => [1, 10, 100, 1000, 10000].map((decade) => digit * decade)).sort((a, b) => a - b);

const short = (value) => (Math.abs(value) >= 1000 ? `${+(value / 1000).toPrecision(3)}k` : `${+value.toPrecision(3)}`);

function ticks([low, high], count) {
  const rough = (high - low) / count, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * base).find((step) => step >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) found.push(value);
  return found;
}

// Value of a line at x: its step's, or between its points; undefined outside of them.
function valueAt({ points, isStep }, x) {
  if (!points.length || x < points[0][0] || x > points.at(-1)[0]) return undefined;
  let low = 0, high = points.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] <= x) low = middle; else high = middle; }
  const [x0, y0] = points[low], [x1, y1] = points[high];
  return isStep || x1 === x0 ? y0 : y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

export class Plot {
  constructor(canvas, readout) {
    Object.assign(this, { canvas, readout, figure: null, legendRows: 0, zoom: null, cursor: null, drag: null });
    canvas.tabIndex = 0;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("pointerleave", () => { if (!this.drag) { this.cursor = null; this.draw(); } });
    canvas.addEventListener("dblclick", () => { this.zoom = null; this.draw(); });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  // Show a figure; the zoom stays as long as the x axis is the same.
  show(figure) {
    if (this.figure?.x.name !== figure.x.name) this.zoom = this.cursor = null;
    else if (this.cursor?.line >= figure.lines?.length) this.cursor = null;
    this.figure = figure;
    this.draw();
  }

  get range() { return this.zoom ?? this.figure.x.range; }

  scale() {
    const { figure, canvas } = this, width = canvas.clientWidth, height = canvas.clientHeight;
    const forth = figure.x.isLog ? Math.log10 : (value) => value, back = figure.x.isLog ? (value) => 10 ** value : (value) => value;
    const top = 8 + this.legendRows * LEGEND_ROW, wide = width - MARGIN.left - MARGIN.right, high = height - top - MARGIN.bottom;
    const [x0, x1] = this.range.map(forth), half = (x1 - x0) * high / wide / 2, [y0, y1] = figure.plane ? [-half, half] : figure.y.range;
    return {
      width, height, top, yRange: [y0, y1],
      toX: (value) => MARGIN.left + (forth(value) - x0) / (x1 - x0) * wide,
      fromX: (pixel) => back(x0 + (Math.min(Math.max(pixel - MARGIN.left, 0), wide)) / wide * (x1 - x0)),
      toY: (value) => top + (y1 - value) / (y1 - y0) * high,
      fromY: (pixel) => y1 - (pixel - top) / high * (y1 - y0),
    };
  }

  // ---- pointer and keys ----

  isAtHandle(event) {
    const { handle } = this.figure;
    return !!handle && Math.abs(this.scale().toY(handle.y) - event.offsetY) <= GRIP;
  }

  press(event) {
    if (!this.figure || event.button) return;
    this.drag = this.isAtHandle(event) ? { isHandle: true } : { from: event.offsetX, to: event.offsetX };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.figure) return;
    const scale = this.scale();
    if (this.drag?.isHandle) { this.figure.handle?.move(scale.fromY(event.offsetY)); return; }
    if (this.drag) this.drag.to = event.offsetX;
    this.canvas.style.cursor = this.isAtHandle(event) ? "ns-resize" : "crosshair";
    this.cursor = this.figure.plane ? nearest(this.figure.lines, scale, event) : scale.fromX(event.offsetX);
    this.draw();
  }

  release(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (drag.isHandle) this.figure.handle?.done();
    else if (Math.abs(event.offsetX - drag.from) >= LEAST_DRAG) {
      const scale = this.scale();
      this.zoom = [drag.from, event.offsetX].map(scale.fromX).sort((a, b) => a - b);
    }
    this.draw();
  }

  key(event) {
    if (!this.figure || event.ctrlKey || event.metaKey || event.altKey) return;
    const { x } = this.figure, forth = x.isLog ? Math.log10 : (value) => value, back = x.isLog ? (value) => 10 ** value : (value) => value;
    const { plane, lines } = this.figure, [low, high] = this.range.map(forth), full = (x.full ?? x.range).map(forth), step = event.key === "ArrowLeft" ? -1 : 1;
    const at = plane ? (low + high) / 2 : forth(this.cursor ?? back((low + high) / 2));
    const zoomed = (factor) => {
      const found = [at - (at - low) * factor, at + (high - at) * factor];
      this.zoom = found[0] <= full[0] && found[1] >= full[1] ? null : [Math.max(found[0], full[0]), Math.min(found[1], full[1])].map(back);
    };
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const line = this.cursor?.line ?? 0, most = (lines?.[line]?.points.length ?? 0) - 1;
      if (!plane) this.cursor = back(Math.min(high, Math.max(low, at + step * (high - low) / 60)));
      else if (most > 0) this.cursor = { line, i: Math.min(most, Math.max(0, (this.cursor?.i ?? most >> 1) + step * 4)) };
    } else if (event.key === "+" || event.key === "=") zoomed(0.5);
    else if (event.key === "-") zoomed(2);
    else if (event.key === "Escape" || event.key === "0") { this.zoom = this.cursor = null; } else return;
    event.preventDefault();
    this.draw();
  }

  // ---- drawing ----

  draw() {
    const { canvas, figure } = this;
    if (!figure || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    const size = [canvas.clientWidth, canvas.clientHeight].map((pixels) => Math.round(pixels * ratio));
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    this.legendRows = this.legend(pen);
    const scale = this.scale();
    this.axes(pen, scale);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, scale.top, scale.width - MARGIN.left - MARGIN.right, scale.height - scale.top - MARGIN.bottom);
    pen.clip();
    for (const bar of figure.bars ?? []) drawBar(pen, scale, bar);
    for (const circle of figure.plane?.circles ?? []) drawCircle(pen, scale, circle);
    pen.lineWidth = 1.8;
    for (const { points, color: name, dash } of figure.lines ?? []) {
      pen.strokeStyle = color(name);
      pen.setLineDash(dash ?? []);
      pen.beginPath();
      points.forEach(([x, y], i) => pen[i ? "lineTo" : "moveTo"](scale.toX(x), scale.toY(y)));
      pen.stroke();
    }
    pen.setLineDash([]);
    this.drawCursor(pen, scale);
    pen.restore();
  }

  axes(pen, scale) {
    const { x, y } = this.figure, range = this.range, bottom = scale.height - MARGIN.bottom;
    pen.strokeStyle = color("--line");
    pen.fillStyle = color("--ink");
    pen.textAlign = "center";
    const isWide = x.isLog && range[1] / range[0] > 6;
    let right = -Infinity;
    for (const value of isWide ? LOG_TICKS : ticks(range, 6)) {
      if (value < range[0] || value > range[1]) continue;
      const at = scale.toX(value), text = short(value), half = pen.measureText(text).width / 2;
      pen.beginPath(); pen.moveTo(at, scale.top); pen.lineTo(at, bottom); pen.stroke();
      if (at - half > right + 4) { pen.fillText(text, at, bottom + 13); right = at + half; }
    }
    pen.fillText(x.unit ? `${x.name}, ${x.unit}` : x.name, (MARGIN.left + scale.width - MARGIN.right) / 2, bottom + 27);
    pen.textAlign = "right";
    for (const value of ticks(scale.yRange, Math.max(2, Math.min(6, scale.height / 35)))) {
      const at = scale.toY(value);
      pen.beginPath(); pen.moveTo(MARGIN.left, at); pen.lineTo(scale.width - MARGIN.right, at); pen.stroke();
      pen.fillText(short(value), MARGIN.left - 5, at + 4);
    }
    pen.save();
    pen.translate(11, (scale.top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(y.unit ? `${y.name}, ${y.unit}` : y.name, 0, 0);
    pen.restore();
  }

  drawCursor(pen, scale) {
    const { cursor, drag, readout } = this;
    if (drag && !drag.isHandle && Math.abs(drag.to - drag.from) >= LEAST_DRAG) {
      pen.globalAlpha = 0.2;
      pen.fillStyle = color("--a");
      pen.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), scale.height);
      pen.globalAlpha = 1;
    }
    if (this.figure.plane && cursor) {
      const [x, y] = this.figure.lines[cursor.line].points[cursor.i];
      pen.fillStyle = color("--ink");
      pen.beginPath(); pen.arc(scale.toX(x), scale.toY(y), 4, 0, 2 * Math.PI); pen.fill();
    } else if (cursor !== null) {
      pen.lineWidth = 1;
      pen.strokeStyle = color("--ink");
      pen.beginPath(); pen.moveTo(scale.toX(cursor), 0); pen.lineTo(scale.toX(cursor), scale.height); pen.stroke();
    }
    if (readout) readout.textContent = cursor === null ? "" : this.textAt(cursor);
  }

  // The figure at x in words.
  textAt(at) {
    const { x, y, lines = [], bars = [], plane } = this.figure, digits = y.digits ?? 1;
    if (plane) return plane.textAt(lines[at.line], at.i);
    const found = bars.filter(({ x0, x1 }) => at >= x0 && at < x1).map((bar) => [bar.name, bar.y - (bar.y0 ?? 0)]);
    for (const line of lines) { const value = valueAt(line, at); if (value !== undefined && line.name) found.push([line.name, value]); }
    const place = `${at >= 1000 && x.unit === "Hz" ? `${(at / 1000).toFixed(2)} kHz` : `${at.toFixed(at < 10 ? 1 : 0)} ${x.unit}`}`;
    return `${place}: ${found.map(([name, value]) => `${name} ${fixed(value, digits)}`).join(", ")} ${y.unit}`;
  }

  // Names above the axes; returns the number of rows.
  legend(pen) {
    const { bars = [], lines = [], plane } = this.figure, right = this.canvas.clientWidth - MARGIN.right;
    const named = new Map(bars.map((bar) => [bar.name, bar])).values();
    const items = [...[...named].map((bar) => ({ ...bar, mark: "\u25a0" })), ...(plane?.circles ?? []).map((circle) => ({ ...circle, mark: "\u25cb" })), ...lines.filter(({ name }) => name).map((line) => ({ ...line, mark: line.dash ? "\u2504" : "\u2014" }))];
    pen.textAlign = "left";
    let left = MARGIN.left, row = items.length ? 1 : 0;
    for (const { name, color: ink, mark } of items) {
      const text = `${mark} ${name}`, width = pen.measureText(text).width;
      if (left + width > right && left > MARGIN.left) { left = MARGIN.left; row++; }
      pen.fillStyle = color(ink);
      pen.fillText(text, left, row * LEGEND_ROW - 2);
      left += width + 14;
    }
    return row;
  }
}

function drawBar(pen, scale, bar) {
  const y = scale.toY(bar.y), zero = scale.toY(bar.y0 ?? 0), x = scale.toX(bar.x0), width = Math.max(1, scale.toX(bar.x1) - x - 1);
  pen.fillStyle = color(bar.color);
  pen.globalAlpha = 0.4; // lines in front stay distinguishable
  pen.fillRect(x, Math.min(y, zero), width, Math.abs(zero - y));
  pen.globalAlpha = 1;
  pen.fillRect(x, y - 1, width, 2);
}

function drawCircle(pen, scale, { x, y, radius, color: name }) {
  const pixels = scale.toX(x + radius) - scale.toX(x);
  pen.fillStyle = pen.strokeStyle = color(name);
  pen.beginPath();
  pen.arc(scale.toX(x), scale.toY(y), pixels, 0, 2 * Math.PI);
  pen.stroke();
  pen.globalAlpha = 0.2;
  pen.fill();
  pen.globalAlpha = 1;
}

// Place on a line that is nearest to a pointer, or null without lines.
function nearest(lines, scale, { offsetX, offsetY }) {
  let found = null, least = Infinity;
  lines.forEach(({ points }, line) => {
    points.forEach(([x, y], i) => {
      const distance = Math.hypot(scale.toX(x) - offsetX, scale.toY(y) - offsetY);
      if (distance < least) { least = distance; found = { line, i }; }
    });
  });
  return found;
}

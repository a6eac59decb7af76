// Line plots and bars on a canvas, in the page's colours, with a logarithmic or linear axis.

const colors = new Map(); // cached, because a style query makes the browser compute all styles

function color(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(name);
}

// Called when the theme changes.
export function forgetColors() { colors.clear(); }

const MARGIN = { left: 44, right: 10, top: 8, bottom: 26 };

function scaleOf(canvas, { x, y, isLog }) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const fx = isLog ? Math.log10 : (value) => value, [x0, x1] = x.map(fx);
  return {
    width, height,
    toX: (value) => MARGIN.left + (fx(value) - x0) / (x1 - x0) * (width - MARGIN.left - MARGIN.right),
    toY: (value) => MARGIN.top + (y[1] - value) / (y[1] - y[0]) * (height - MARGIN.top - MARGIN.bottom),
    fromY: (pixel) => y[1] - (pixel - MARGIN.top) / (height - MARGIN.top - MARGIN.bottom) * (y[1] - y[0]),
  };
}

// lines: [{points, color, dash?, name?}], bars: [{x0, x1, y, low?, high?}].
export function draw(canvas, options, { lines = [], bars = [] }) {
  const ratio = window.devicePixelRatio || 1, scale = scaleOf(canvas, options);
  if (!scale.width) return scale;
  const pen = canvas.getContext("2d"), size = [Math.round(scale.width * ratio), Math.round(scale.height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, scale.width, scale.height);
  pen.font = "11px system-ui, sans-serif";
  pen.lineWidth = 1;
  pen.strokeStyle = color("--line");
  pen.fillStyle = color("--ink");
  pen.textAlign = "center";
  for (const value of options.isLog ? LOG_TICKS : ticks(options.x, 8)) {
    if (value < options.x[0] || value > options.x[1]) continue;
    const x = scale.toX(value);
    pen.beginPath(); pen.moveTo(x, MARGIN.top); pen.lineTo(x, scale.height - MARGIN.bottom); pen.stroke();
    pen.fillText(value >= 1000 ? `${value / 1000}k` : `${value}`, x, scale.height - MARGIN.bottom + 14);
  }
  pen.textAlign = "right";
  for (const value of ticks(options.y, 6)) {
    const y = scale.toY(value);
    pen.beginPath(); pen.moveTo(MARGIN.left, y); pen.lineTo(scale.width - MARGIN.right, y); pen.stroke();
    pen.fillText(`${+value.toPrecision(3)}`, MARGIN.left - 5, y + 4);
  }
  pen.save();
  pen.beginPath();
  pen.rect(MARGIN.left, MARGIN.top, scale.width - MARGIN.left - MARGIN.right, scale.height - MARGIN.top - MARGIN.bottom);
  pen.clip();
  for (const bar of bars) {
    const y = scale.toY(bar.y), zero = scale.toY(0), x = scale.toX(bar.x0), width = Math.max(1, scale.toX(bar.x1) - x - 1);
    pen.fillStyle = color(bar.color || "--a");
    pen.fillRect(x, Math.min(y, zero), width, Math.abs(zero - y));
    if (bar.half) {
      pen.strokeStyle = color("--ink");
      pen.beginPath(); pen.moveTo(x + width / 2, scale.toY(bar.y - bar.half)); pen.lineTo(x + width / 2, scale.toY(bar.y + bar.half));
      pen.stroke();
    }
  }
  pen.lineWidth = 1.8;
  for (const line of lines) {
    pen.strokeStyle = color(line.color);
    pen.setLineDash(line.dash || []);
    pen.beginPath();
    line.points.forEach(([x, y], i) => pen[i ? "lineTo" : "moveTo"](scale.toX(x), scale.toY(y)));
    pen.stroke();
  }
  pen.restore();
  pen.setLineDash([]);
  pen.textAlign = "left";
  let left = MARGIN.left + 6, down = MARGIN.top + 12;
  for (const line of lines.filter((line) => line.name)) {
    const text = `${line.dash ? "\u2504" : "\u2014"} ${line.name}`, width = pen.measureText(text).width;
    if (left + width > scale.width - MARGIN.right && left > MARGIN.left + 6) { left = MARGIN.left + 6; down += 13; }
    pen.globalAlpha = 0.75;
    pen.fillStyle = color("--paper");
    pen.fillRect(left - 2, down - 10, width + 4, 13);
    pen.globalAlpha = 1;
    pen.fillStyle = color(line.color);
    pen.fillText(text, left, down);
    left += width + 16;
  }
  return scale;
}

const LOG_TICKS = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000];

function ticks([low, high], count) {
  const rough = (high - low) / count, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * base).find((step) => step >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) found.push(value);
  return found;
}

// Plots as SVG over frequency, with a cursor whose values stand below in words.
//
// A figure is {range, name, y, lines, bars}: range in Hz, name of the axis, y = {name, unit, range, digits?};
// lines: [{name, color, points: [[hz, y], ..], dash?, kind?}]; bars: [{x0, x1, y0, y, name, color}].

import { fixed } from "./dsp.js";
import { element } from "./state.js";

const MARGIN = { left: 46, right: 10, top: 8, bottom: 34 };
const LABEL_WIDTH = 30;
const TICKS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000];
const KEY_STEPS = 60; // of the cursor across a plot

const short = (value) => (Math.abs(value) >= 1000 ? `${value / 1000}k` : `${+value.toPrecision(3)}`);

function ticks([low, high], count) {
  const rough = (high - low) / count, base = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((factor) => factor * base).find((size) => size >= rough);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => (Math.ceil(low / step) + i) * step);
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const path = (points, attributes) => shape("polyline", { points: points.join(" "), fill: "none", ...attributes });

export class Plot {
  constructor(svg, legend, readout) {
    Object.assign(this, { svg, legend, readout, figure: null, cursor: null });
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", (event) => { if (this.figure) this.point(this.fromX(event.clientX - svg.getBoundingClientRect().left)); });
    svg.addEventListener("pointerleave", () => this.point(null));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  show(figure) {
    this.figure = figure;
    const { svg } = this, { clientWidth: width, clientHeight: height } = svg, { left, top } = MARGIN;
    if (!width) return;
    const wide = width - left - MARGIN.right, high = height - top - MARGIN.bottom, [x0, x1] = figure.range.map(Math.log10), [y0, y1] = figure.y.range;
    const toX = (hz) => (Math.log10(hz) - x0) / (x1 - x0) * wide, toY = (value) => (y1 - value) / (y1 - y0) * high;
    this.fromX = (pixel) => 10 ** (x0 + (x1 - x0) * Math.min(1, Math.max(0, (pixel - left) / wide)));
    this.toX = toX;
    this.mark = shape("line", { y1: 0, y2: high, stroke: "currentColor", visibility: "hidden" });
    const inner = shape("svg", { x: left, y: top, width: wide, height: high }), texts = [];
    let labelled = -LABEL_WIDTH;
    for (const hz of TICKS.filter((tick) => tick >= figure.range[0] && tick <= figure.range[1])) {
      const x = toX(hz);
      inner.append(path([x, 0, x, high], { stroke: "var(--line)" }));
      if (x < labelled + LABEL_WIDTH) continue;
      texts.push(shape("text", { x: left + x, y: top + high + 13, "text-anchor": "middle" }, short(hz)));
      labelled = x;
    }
    for (const value of ticks(figure.y.range, Math.max(2, Math.min(6, height / 35)))) {
      inner.append(path([0, toY(value), wide, toY(value)], { stroke: "var(--line)" }));
      texts.push(shape("text", { x: left - 5, y: top + toY(value) + 4, "text-anchor": "end" }, short(value)));
    }
    const { bars = [], lines = [] } = figure;
    for (const bar of bars) {
      const x = toX(bar.x0), size = Math.max(1, toX(bar.x1) - x - 1), y = toY(bar.y), zero = toY(bar.y0);
      inner.append(shape("rect", { x, y: Math.min(y, zero), width: size, height: Math.abs(zero - y), fill: `var(${bar.color})`, opacity: 0.4 }), path([x, y, x + size, y], { stroke: `var(${bar.color})`, "stroke-width": 2 }));
    }
    for (const { points, color, dash = "", kind = "" } of lines) inner.append(path(points.map(([hz, value]) => [toX(hz), toY(value)]), { stroke: `var(${color})`, "stroke-width": 1.8, "stroke-dasharray": dash, class: kind }));
    inner.append(this.mark);
    texts.push(shape("text", { x: left + wide / 2, y: height - 7, "text-anchor": "middle" }, `${figure.name}, Hz`),
      shape("text", { transform: `translate(11 ${top + high / 2}) rotate(-90)`, "text-anchor": "middle" }, figure.y.unit ? `${figure.y.name}, ${figure.y.unit}` : figure.y.name));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(...texts, inner);
    const named = new Map([...bars, ...lines].map((item) => [item.name, item]));
    this.legend.replaceChildren(...[...named.values()].map(({ name, color, dash, points, kind = "" }) => {
      const item = element("span", { textContent: `${points ? (dash ? "\u2504" : "\u2014") : "\u25a0"} ${name}`, className: kind });
      item.style.color = `var(${color})`;
      return item;
    }));
    this.point(this.cursor);
  }

  // Set the cursor, or remove it.
  point(hz) {
    this.cursor = hz;
    this.readout.textContent = hz === null ? "" : this.textAt(hz);
    if (!this.mark) return;
    for (const name of ["x1", "x2"]) this.mark.setAttribute(name, hz === null ? 0 : this.toX(hz));
    this.mark.setAttribute("visibility", hz === null ? "hidden" : "visible");
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!this.figure || event.ctrlKey || event.metaKey || event.altKey || !(step || event.key === "Escape")) return;
    const [low, high] = this.figure.range, at = this.cursor ?? Math.sqrt(low * high);
    this.point(step ? Math.min(high, Math.max(low, at * (high / low) ** (step / KEY_STEPS))) : null);
    event.preventDefault();
  }

  // The figure at a frequency in words.
  textAt(hz) {
    const { y, lines = [], bars = [] } = this.figure;
    const values = bars.filter(({ x0, x1 }) => hz >= x0 && hz < x1).map((bar) => [bar.name, bar.y - bar.y0]);
    for (const { name, points } of lines) if (points.length && hz <= points.at(-1)[0] && hz >= points[0][0]) values.push([name, points.findLast(([x]) => x <= hz)[1]]);
    const place = hz >= 1000 ? `${(hz / 1000).toFixed(2)} kHz` : `${hz.toFixed(0)} Hz`;
    return `${place}: ${values.map(([name, value]) => `${name} ${fixed(value, y.digits ?? 1)}`).join(", ")} ${y.unit}`;
  }
}

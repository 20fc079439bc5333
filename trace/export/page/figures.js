// Shared by all parts of the page: its data, figures as people read them, colours, canvases.
"use strict";

const trace = JSON.parse(document.getElementById("trace").textContent);
const IDLE = trace.layers.indexOf("idle polling");
const TRACER = trace.layers.indexOf("tracer itself");
const LETTER_PX = 6.4;

function figure(value) {
  if (!Number.isFinite(value)) {
    return "\u2013";
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) {
    return value.toExponential(2);
  }
  const decimals = size === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  const rounded = size >= 1000 ? Number(value.toPrecision(3)) : value;
  return grouped(rounded.toFixed(decimals));
}

function grouped(digits) {
  const [whole, fraction] = digits.split(".");
  const groups = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return fraction === undefined ? groups : `${groups}.${fraction}`;
}

function count(n) {
  return grouped(String(n));
}

function duration(ns) {
  const units = [[999.5, 1, "ns"], [999.5e3, 1e3, "\u00b5s"], [999.5e6, 1e6, "ms"], [Infinity, 1e9, "s"]];
  const [, scale, unit] = units.find(([below]) => Math.abs(ns) < below);
  return `${figure(ns / scale)}\u00a0${unit}`;
}

function percent(share) {
  return `${figure(share * 100)}\u00a0%`;
}

// A place on the time line, with as many digits as `stepNs` needs.
function moment(ns, stepNs = 1) {
  const decimals = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(stepNs, 1)))));
  return `${(ns / 1e9).toFixed(decimals)}\u00a0s`;
}

function clipped(text, widthPx) {
  const letters = Math.floor(widthPx / LETTER_PX);
  if (letters < 3) {
    return "";
  }
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}\u2026`;
}

// Colours live in the style sheet, so that light, dark and paper need one drawing.
const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "quiet", "rule", "card", "link", "accent", "fault", "on-layer"];
  trace.layers.forEach((_, layer) => names.push(`l${layer}`));
  for (const name of names) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

// What is no work is hatched: colour is never the only sign.
function hatched(context, layer) {
  if (layer !== IDLE && layer !== TRACER) {
    return colours[`l${layer}`];
  }
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = colours.card;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = colours[`l${layer}`];
  brush.lineWidth = layer === TRACER ? 3 : 2;
  brush.beginPath();
  for (const shift of [-6, 0, 6]) {
    const [from, to] = layer === TRACER ? [6, 0] : [0, 6];
    brush.moveTo(shift - 1, from + (layer === TRACER ? 1 : -1));
    brush.lineTo(shift + 7, to + (layer === TRACER ? -1 : 1));
  }
  brush.stroke();
  return context.createPattern(tile, "repeat");
}

// Letters on hatching need a ground of their own.
function backLabel(context, label, x, y) {
  context.fillStyle = colours.card;
  context.fillRect(x - 2, y - 6.5, context.measureText(label).width + 4, 13);
}

// Fits a canvas to its place on the screen and gives a context whose unit is a CSS pixel.
function fitted(canvas, heightPx) {
  const ratio = window.devicePixelRatio || 1;
  const widthPx = canvas.clientWidth || 800;
  canvas.style.height = `${heightPx}px`;
  canvas.width = Math.round(widthPx * ratio);
  canvas.height = Math.round(heightPx * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  return [context, widthPx];
}

// One redraw per frame of the screen, however many events ask for one.
function redrawer(draw) {
  let isAsked = false;
  return () => {
    if (!isAsked) {
      isAsked = true;
      requestAnimationFrame(() => {
        isAsked = false;
        draw();
      });
    }
  };
}

const redraws = [];
function onEveryLook(draw) {
  redraws.push(draw);
}
function redrawAll() {
  readColours();
  redraws.forEach((draw) => draw());
}
readColours();
window.addEventListener("resize", redrawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
matchMedia("print").addEventListener("change", redrawAll);

function nameOf(functionIndex) {
  const known = trace.functions[functionIndex];
  return known === undefined ? "?" : known[0];
}

function layerOf(functionIndex) {
  const known = trace.functions[functionIndex];
  return known === undefined ? trace.layers.length - 1 : known[1];
}

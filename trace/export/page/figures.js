// Shared by all parts of the page: its data, figures as people read them, colours, canvases.

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

// A place on the time line, with as many digits as `stepNs` needs. A short trace uses the unit of its length: a row of
// noughts is hard to read.
function moment(ns, stepNs = 1) {
  const units = [[2e3, 1, "ns"], [2e6, 1e3, "\u00b5s"], [2e9, 1e6, "ms"], [Infinity, 1e9, "s"]];
  const [, scale, unit] = units.find(([below]) => trace.length < below);
  const decimals = Math.min(9, Math.max(0, Math.ceil(Math.log10(scale / Math.max(stepNs, 1)) - 1e-9)));
  return `${grouped((ns / scale).toFixed(decimals))}\u00a0${unit}`;
}

// `std::map<...>::find` for a name with template arguments: what stands in angle brackets is long and says the least. A
// name whose brackets are no pairs (operators, conversions, anything odd) stays as it is.
function folded(name) {
  let depth = 0;
  let short = "";
  for (let at = 0; at < name.length; at += 1) {
    const isOperator = /operator[<>=-]*$/.test(name.slice(Math.max(0, at - 11), at));
    if (name[at] === "<" && !isOperator) {
      short += depth === 0 ? "<\u2026>" : "";
      depth += 1;
    } else if (name[at] === ">" && !isOperator && depth > 0) {
      depth -= 1;
    } else if (depth === 0) {
      short += name[at];
    }
  }
  return depth === 0 ? short : name;
}

// As much of a text as has room: first its template arguments go, then its middle, since names of one family differ at
// the end.
function clipped(text, widthPx) {
  const letters = Math.floor(widthPx / LETTER_PX);
  if (letters < 3) {
    return "";
  }
  if (text.length <= letters) {
    return text;
  }
  const short = text.includes("<") ? folded(text) : text;
  if (short.length <= letters) {
    return short;
  }
  const tail = letters < 10 ? 0 : Math.floor(letters * 0.4);
  return `${short.slice(0, letters - 1 - tail)}\u2026${tail > 0 ? short.slice(-tail) : ""}`;
}

// Colours live in the style sheet, so that light, dark and paper need one drawing.
const colours = {};
const hatchings = new Map();
function readColours() {
  hatchings.clear();
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
  const known = hatchings.get(layer);
  if (known !== undefined) {
    return known;
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
  hatchings.set(layer, context.createPattern(tile, "repeat"));
  return hatchings.get(layer);
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

// What all calls of a function have in common, as lines of the read-out; empty where no call was seen whole.
function figuresOf(functionIndex) {
  const histogram = trace.histograms[functionIndex];
  if (histogram === undefined) {
    return [];
  }
  const { calls, buckets, figures: known } = histogram;
  const seen = buckets.reduce((sum, [, n]) => sum + n, 0);
  const words = known.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
  return [`all calls of it: ${count(calls)}${seen < calls ? `, ${count(seen)} seen whole` : ""}; raw ${words}`];
}

// A function is looked for by any part of its name.
function functionsNamed(wanted) {
  const word = wanted.trim().toLowerCase();
  if (word === "") {
    return null;
  }
  return new Set(trace.functions.flatMap(([name], index) => (name.toLowerCase().includes(word) ? [index] : [])));
}

function isOnScreen(element) {
  const place = element.getBoundingClientRect();
  return place.bottom > 0 && place.top < window.innerHeight;
}

// Letters that a person types are text; everywhere else on the page they are keys.
function isTyping(target) {
  return target.closest("input[type=search], select, textarea") !== null;
}

// The slash goes to the search of the section with the focus, else the one under the pointer, else in the middle of the
// screen.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) {
    return;
  }
  const searches = [...document.querySelectorAll("input[type=search]")];
  const middle = window.innerHeight / 2;
  const away = (search) => {
    const section = search.closest("section");
    const { top, bottom } = section.getBoundingClientRect();
    const rank = section.contains(document.activeElement) ? -2 : section.matches(":hover") ? -1 : 0;
    return rank < 0 && bottom > 0 && top < window.innerHeight ? rank : Math.max(top - middle, middle - bottom, 0);
  };
  const [nearest] = searches.sort((a, b) => away(a) - away(b));
  if (nearest !== undefined) {
    event.preventDefault();
    nearest.focus();
    nearest.select();
  }
});

// Escape empties a search, then gives the keys back to the picture.
function leaveSearch(search, picture) {
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      if (search.value !== "") {
        search.value = "";
        search.dispatchEvent(new Event("input"));
      } else {
        picture.focus();
      }
    }
  });
}

// The place after `at` among `n` that form a ring; -1 stands before the first of them.
function turned(at, step, n) {
  return at < 0 ? (step > 0 ? 0 : n - 1) : (at + step + n) % n;
}

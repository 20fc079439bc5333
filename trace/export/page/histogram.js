// How long the calls of one function lasted: bars over a logarithmic axis, chosen from the functions table.

const SVG = "http://www.w3.org/2000/svg";

function shape(parent, kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  if (text !== undefined) {
    element.textContent = text;
  }
  parent.append(element);
  return element;
}

// Buckets as [longest ns, calls]; the lower end of one is the upper end of the one before, or half of its own.
function drawHistogram(place, functionIndex) {
  const { buckets, figures } = trace.histograms[functionIndex];
  place.replaceChildren();
  const [width, height, left, bottom, top] = [760, 230, 56, 38, 26];
  const svg = shape(place, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  const described = figures.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
  svg.setAttribute("aria-label", `Durations of ${nameOf(functionIndex)}: ${described}`);
  const ends = buckets.map(([ns], at) => [at === 0 ? ns / 1.2 : Math.max(buckets[at - 1][0], ns / 1.2), ns]);
  const all = [...ends.flat(), ...figures.map(([, ns]) => ns)].map((ns) => Math.max(1, ns));
  const low = Math.log10(Math.min(...all));
  const high = Math.max(Math.log10(Math.max(...all)), low + 0.5);
  const x = (ns) => left + ((Math.log10(Math.max(ns, 1)) - low) / (high - low)) * (width - left - 12);
  const most = Math.max(...buckets.map(([, calls]) => calls));
  // Square roots: one slow call among a million must still be seen.
  const y = (calls) => height - bottom - Math.sqrt(calls / most) * (height - bottom - top);
  for (const calls of new Set([most, Math.max(1, Math.round(most / 4)), Math.max(1, Math.round(most / 25))])) {
    shape(svg, "line", { class: "grid", x1: left, x2: width - 8, y1: y(calls), y2: y(calls) });
    shape(svg, "text", { class: "axis", x: left - 6, y: y(calls) + 4, "text-anchor": "end" }, count(calls));
  }
  for (let decade = Math.ceil(low); decade <= Math.floor(high); decade += 1) {
    const at = x(10 ** decade);
    shape(svg, "line", { class: "grid", x1: at, x2: at, y1: top, y2: height - bottom });
    shape(svg, "text", { class: "axis", x: at, y: height - bottom + 16, "text-anchor": "middle" }, duration(10 ** decade));
  }
  buckets.forEach(([, calls], at) => {
    const [from, to] = ends[at].map(x);
    const bar = shape(svg, "rect", { class: "fill", x: from + 0.5, y: y(calls), width: Math.max(1.5, to - from - 1), height: height - bottom - y(calls) });
    shape(bar, "title", {}, `${duration(ends[at][0])} to ${duration(ends[at][1])}: ${count(calls)} calls`);
  });
  let lastPx = -Infinity;
  let row = 0;
  for (const [name, ns] of figures) {
    row = x(ns) - lastPx < 40 ? 1 - row : 0;
    lastPx = x(ns);
    shape(svg, "line", { class: "mark", x1: x(ns), x2: x(ns), y1: top - 2, y2: height - bottom });
    const anchor = x(ns) > width - 60 ? "end" : "start";
    shape(svg, "text", { x: x(ns), y: 10 + row * 11, "text-anchor": anchor }, name);
  }
  shape(svg, "text", { class: "axis", x: width / 2, y: height - 4, "text-anchor": "middle" }, "duration of a call; height is the square root of the number of calls");
}

const histogramPlace = document.getElementById("histogram");
if (histogramPlace !== null) {
  const choice = document.getElementById("histogram-of");
  const reading = document.getElementById("histogram-reading");
  const chosen = () => {
    const functionIndex = Number(choice.value);
    drawHistogram(histogramPlace, functionIndex);
    const { figures } = trace.histograms[functionIndex];
    reading.textContent = figures.map(([name, ns]) => `${name} ${duration(ns)}`).join("; ");
  };
  choice.addEventListener("change", chosen);
  for (const button of document.querySelectorAll("button[data-function]")) {
    button.addEventListener("click", () => {
      choice.value = button.dataset.function;
      chosen();
      document.getElementById("durations").scrollIntoView({ block: "start" });
      choice.focus({ preventScroll: true });
    });
  }
  if (choice.options.length > 0) {
    chosen();
  }
}

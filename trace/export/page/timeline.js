// The time chart: per thread its layers over time, the function that took most of each bucket, packets, marks of the
// detectors, and single calls where the page carries them. One canvas per thread, drawn only while it is on the screen.
// All share one view, which wheel, drag, buttons and keys move. Letters are keys on the whole page while a chart is on
// the screen; arrows, Home and Page belong to the chart that has the focus, since the page scrolls by them.

const chart = document.getElementById("chart");
if (chart !== null && trace.timelines.length > 0) {
  const [MARKS_PX, AREA_PX, STRIP_PX, PACKETS_PX, DETAIL_PX] = [20, 62, 17, 24, 15];
  const AXIS_PX = trace.began === null ? 20 : 33;
  const DETAIL_ROWS_MAX = 16;
  const NARROWEST_NS = 200;
  const reading = document.getElementById("chart-reading");
  const range = document.getElementById("chart-range");
  const search = document.getElementById("chart-search");
  const found = document.getElementById("chart-found");
  const view = { from: 0, to: Math.max(trace.length, 1) };
  let cursorNs = -1;
  let cursorLane = 0;
  let wanted = null; // the functions that are looked for
  let places = [];
  let marked = null; // a stretch that is being marked with shift and drag
  let markAt = -1;
  let placeAt = -1;
  let worstAt = -1;
  const SLICES = { enter: "leave", syscall_in: "syscall_out", switched_out: "switched_in", interrupt_in: "interrupt_out" };
  const OPENER = Object.fromEntries(Object.entries(SLICES).map(([opens, closes]) => [closes, opens]));

  // The calls of a window, as slices with a depth.
  function slicesOf(window) {
    const events = window.events;
    const [first, last] = [events[0][0], events[events.length - 1][0]];
    const slices = [];
    const ticks = [];
    const open = window.stack.map((index) => ({ kind: "enter", index, from: first, isCut: true }));
    const close = (to, isCut) => {
      const call = open.pop();
      slices.push({ ...call, to, depth: open.length, isCut: call.isCut || isCut });
    };
    for (const [at, what, index, value] of events) {
      if (SLICES[what] !== undefined) {
        open.push({ kind: what, index, value, from: at, isCut: false });
      } else if (OPENER[what] !== undefined) {
        const matchesCall = (call) => call.kind === OPENER[what] && (what !== "leave" || call.index === index);
        let place = open.length - 1;
        while (place >= 0 && !matchesCall(open[place])) {
          place -= 1;
        }
        while (place >= 0 && open.length > place + 1) {
          close(at, true);
        }
        if (place >= 0) {
          close(at, false);
        }
      } else {
        ticks.push({ at, what, value });
      }
    }
    while (open.length > 0) {
      close(last, true);
    }
    return { first, last, slices, ticks, rows: Math.min(DETAIL_ROWS_MAX, 1 + Math.max(0, ...slices.map((s) => s.depth))) };
  }

  function sliceName(slice) {
    switch (slice.kind) {
      case "enter": return nameOf(slice.index);
      case "syscall_in": return `system call ${slice.value}`;
      case "interrupt_in": return `interrupt ${slice.value}`;
      default: return slice.value === 1 ? "off the CPU (preempted)" : "off the CPU (waiting)";
    }
  }

  const lanes = trace.timelines.map((line, order) => {
    const windows = trace.windows.filter((w) => w.thread === line.thread && w.events.length > 1).map(slicesOf);
    const marks = trace.marks.filter((mark) => mark.thread === line.thread || (mark.thread < 0 && order === 0));
    const worst = trace.worst.filter((call) => call.thread === line.thread);
    const canvas = document.getElementById(`lane-${line.thread}`);
    const packetsMax = Math.max(0, ...line.packets);
    return { line, windows, marks, worst, canvas, packetsMax, isSeen: true };
  });

  // What is missing in a hole.
  function holeWords(length, events) {
    return `${events < 0 ? "events" : `${count(events)} events`} missing for ${duration(length)}`;
  }

  // The time of day, UTC, with as many digits as the step needs.
  function timeOfDay(ns, stepNs) {
    const [seconds, rest] = trace.began;
    const all = rest + Math.round(ns);
    const inDay = (seconds + Math.floor(all / 1e9)) % 86_400;
    const two = (n) => String(Math.floor(n)).padStart(2, "0");
    const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(stepNs, 1)) - 1e-9)));
    const fraction = digits === 0 ? "" : `.${String(all % 1e9).padStart(9, "0").slice(0, digits)}`;
    return `${two(inDay / 3600)}:${two((inDay / 60) % 60)}:${two(inDay % 60)}${fraction}`;
  }

  const widthNs = () => view.to - view.from;

  function setView(from, to) {
    const width = Math.min(Math.max(to - from, NARROWEST_NS), Math.max(trace.length, NARROWEST_NS));
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - width / 2, 0), Math.max(trace.length - width, 0));
    view.from = start;
    view.to = start + width;
    range.textContent = `Shown: from ${moment(view.from, width / 1000)} to ${moment(view.to, width / 1000)}, ${duration(width)} of ${duration(trace.length)}`;
    keepView();
    redraw();
  }

  // The address keeps the view, so that a copy of it shows the same. Not at each step: browsers count such changes and
  // refuse.
  let keeping = 0;
  let isKept = false;
  function keepView() {
    clearTimeout(keeping);
    keeping = isKept ? setTimeout(() => {
      history.replaceState(null, "", `#view-${Math.round(view.from)}-${Math.round(view.to)}`);
    }, 300) : 0;
  }

  function zoom(factor, aroundNs = (view.from + view.to) / 2) {
    const share = (aroundNs - view.from) / widthNs();
    const width = Math.min(Math.max(widthNs() * factor, NARROWEST_NS), Math.max(trace.length, 1));
    setView(aroundNs - share * width, aroundNs + (1 - share) * width);
  }

  function pan(share) {
    setView(view.from + share * widthNs(), view.to + share * widthNs());
  }

  // Shows a place of a thread, whose chart may be folded away or off the screen.
  function show(atNs, lengthNs, thread) {
    const width = Math.max(lengthNs * 1.6, 2_000);
    cursorNs = atNs;
    cursorLane = Math.max(0, lanes.findIndex((lane) => lane.line.thread === thread));
    const { canvas } = lanes[cursorLane];
    const fold = canvas.closest("details");
    if (fold !== null) {
      fold.open = true;
    }
    const { top, bottom } = canvas.getBoundingClientRect();
    if (top < 0 || bottom > window.innerHeight) {
      canvas.parentElement.scrollIntoView({ block: "center" });
    }
    setView(atNs + lengthNs / 2 - width / 2, atNs + lengthNs / 2 + width / 2);
  }

  // Charts grow and shrink with the calls they show: the one that is pointed at stays where it is on the screen.
  function draw() {
    const { canvas } = lanes[cursorLane];
    const before = canvas.getBoundingClientRect().top;
    lanes.filter((lane) => lane.isSeen).forEach(drawLane);
    const moved = canvas.getBoundingClientRect().top - before;
    if (moved !== 0 && isOnScreen(canvas)) {
      window.scrollBy(0, moved);
    }
  }
  const redraw = redrawer(draw);

  function drawLane(lane) {
    const { line, canvas } = lane;
    const visible = lane.windows.filter((w) => w.last > view.from && w.first < view.to);
    const detailed = visible.filter((w) => ((w.last - w.first) / widthNs()) * canvas.clientWidth > 60);
    const rows = detailed.reduce((most, w) => Math.max(most, w.rows), 0);
    const hasPackets = lane.packetsMax > 0;
    const height = MARKS_PX + AREA_PX + STRIP_PX + (hasPackets ? PACKETS_PX : 0) + rows * DETAIL_PX + AXIS_PX;
    const [context, widthPx] = fitted(canvas, height);
    const x = (ns) => ((ns - view.from) / widthNs()) * widthPx;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, widthPx, height);
    const first = Math.max(0, Math.floor((view.from - line.start) / line.width));
    const last = Math.min(line.events.length - 1, Math.floor((view.to - line.start) / line.width));
    const areaTop = MARKS_PX;
    context.fillStyle = colours.card;
    context.fillRect(0, areaTop, widthPx, AREA_PX);

    // Layers: one column per bucket, or per pixel where buckets are narrower. Columns begin at whole pixels, else their
    // edges show as stripes, and at multiples of the step, else the picture flickers while it is dragged.
    const step = Math.max(1, Math.ceil(1 / ((line.width / widthNs()) * widthPx)));
    const fills = trace.layers.map((_, layer) => hatched(context, layer));
    const present = Object.keys(line.shares).map(Number);
    for (let bucket = first - (first % step); bucket <= last; bucket += step) {
      const left = Math.round(x(line.start + bucket * line.width));
      const end = Math.min(bucket + step, line.events.length);
      const right = Math.round(x(line.start + end * line.width));
      let bottom = areaTop + AREA_PX;
      for (const layer of present) {
        let sum = 0;
        for (let at = bucket; at < end; at += 1) {
          sum += line.shares[layer][at];
        }
        const high = (sum / (end - bucket) / 1000) * AREA_PX;
        if (high > 0.2) {
          context.fillStyle = fills[layer];
          context.fillRect(left, bottom - high, Math.max(right - left, 1), high);
          bottom -= high;
        }
      }
    }

    // Holes: nothing is known of this time.
    for (const [at, length, thread, events] of trace.holes) {
      const [left, right] = [Math.max(x(at), 0), Math.min(x(at + length), widthPx)];
      if ((thread >= 0 && thread !== line.thread) || right < 0 || left > widthPx) {
        continue;
      }
      const wide = Math.max(right - left, 2);
      context.fillStyle = colours.fault;
      context.globalAlpha = 0.16;
      context.fillRect(left, areaTop, wide, AREA_PX);
      context.globalAlpha = 1;
      context.fillRect(left, areaTop, wide, 2);
      const words = clipped(holeWords(length, events), Math.max(wide, widthPx - left) - 6);
      backLabel(context, words, left + 3, areaTop + 10);
      context.fillText(words, left + 3, areaTop + 10);
    }

    // The function with most self time, equal neighbours as one.
    const stripTop = areaTop + AREA_PX + 1;
    for (let bucket = first; bucket <= last;) {
      const top = line.top[bucket][0];
      let end = bucket + 1;
      while (end <= last && line.top[end][0] === top) {
        end += 1;
      }
      const left = Math.max(0, x(line.start + bucket * line.width));
      const width = Math.min(widthPx, x(line.start + end * line.width)) - left;
      if (top !== undefined) {
        const isMatch = wanted !== null && wanted.has(top);
        context.globalAlpha = wanted !== null && !isMatch ? 0.3 : 1;
        context.fillStyle = fills[layerOf(top)];
        context.fillRect(left, stripTop, Math.max(width - 0.5, 0.5), STRIP_PX - 2);
        context.globalAlpha = 1;
        const label = clipped(nameOf(top), width - 6);
        if (label !== "") {
          const isHatched = [IDLE, TRACER].includes(layerOf(top));
          if (isHatched) {
            backLabel(context, label, left + 3, stripTop + STRIP_PX / 2 - 1);
          }
          context.fillStyle = isHatched || (wanted !== null && !isMatch) ? colours.ink : colours["on-layer"];
          context.fillText(label, left + 3, stripTop + STRIP_PX / 2 - 1);
        }
        if (isMatch) {
          context.fillStyle = colours.accent;
          context.fillRect(left, stripTop + STRIP_PX - 3, Math.max(width, 1.5), 2.5);
        }
      }
      bucket = end;
    }

    // Packets of a bucket.
    let below = stripTop + STRIP_PX;
    if (hasPackets) {
      context.fillStyle = colours.link;
      for (let bucket = first - (first % step); bucket <= last; bucket += step) {
        let most = 0;
        for (let at = bucket; at < Math.min(bucket + step, line.events.length); at += 1) {
          most = Math.max(most, line.packets[at]);
        }
        const high = (most / lane.packetsMax) * (PACKETS_PX - 6);
        const left = x(line.start + bucket * line.width);
        context.fillRect(left, below + PACKETS_PX - 3 - high, Math.max(1, (line.width * step / widthNs()) * widthPx - 0.3), high);
      }
      const words = `packets, at most ${count(lane.packetsMax)} in ${duration(line.width)}`;
      context.fillStyle = colours.paper;
      context.fillRect(0, below, context.measureText(words).width + 8, 13);
      context.fillStyle = colours.quiet;
      context.fillText(words, 4, below + 6);
      below += PACKETS_PX;
    }

    // Single calls where the page carries them; elsewhere a line that says where to zoom.
    for (const window of visible) {
      if (!detailed.includes(window)) {
        context.fillStyle = colours.accent;
        context.fillRect(x(window.first) - 1, below - 2, Math.max(3, x(window.last) - x(window.first)), 2);
        continue;
      }
      for (const slice of window.slices) {
        if (slice.depth >= DETAIL_ROWS_MAX || slice.to < view.from || slice.from > view.to) {
          continue;
        }
        const left = Math.max(x(slice.from), 0);
        const width = Math.min(x(slice.to), widthPx) - left;
        const top = below + slice.depth * DETAIL_PX;
        const isFunction = slice.kind === "enter";
        const isMatch = isFunction && wanted !== null && wanted.has(slice.index);
        context.fillStyle = isFunction ? fills[layerOf(slice.index)] : colours.rule;
        context.fillRect(left, top, Math.max(width - 0.6, 0.6), DETAIL_PX - 1.5);
        if (isMatch) {
          context.strokeStyle = colours.accent;
          context.lineWidth = 2;
          context.strokeRect(left + 1, top + 1, Math.max(width - 2, 1), DETAIL_PX - 3.5);
        }
        const label = clipped(`${slice.isCut ? "\u2026" : ""}${sliceName(slice)}`, width - 6);
        if (label !== "") {
          const isPlain = isFunction && ![IDLE, TRACER].includes(layerOf(slice.index));
          if (isFunction && !isPlain) {
            backLabel(context, label, left + 3, top + DETAIL_PX / 2 - 0.5);
          }
          context.fillStyle = isPlain ? colours["on-layer"] : colours.ink;
          context.fillText(label, left + 3, top + DETAIL_PX / 2 - 0.5);
        }
      }
      context.fillStyle = colours.ink;
      for (const tick of window.ticks) {
        context.fillRect(x(tick.at), below - 3, 1, 4);
      }
    }
    below += rows * DETAIL_PX;

    // Marks of detectors and worst calls. A label that has no room is left to the reading.
    let free = 0;
    const mark = (at, length, label, colour) => {
      const [left, right] = [x(at), x(at + length)];
      if (right < 0 || left > widthPx) {
        return;
      }
      context.fillStyle = colour;
      if (right - left > 3) {
        const from = Math.max(left, 0);
        context.fillRect(from, MARKS_PX - 4, Math.min(right, widthPx) - from, 2.5);
      }
      context.beginPath();
      const tip = Math.min(Math.max(left, 4), widthPx - 4);
      context.moveTo(tip - 4, MARKS_PX - 9);
      context.lineTo(tip + 4, MARKS_PX - 9);
      context.lineTo(tip, MARKS_PX - 1);
      context.fill();
      if (tip + 5 > free) {
        const text = clipped(label, widthPx - tip - 8);
        context.fillText(text, tip + 6, 7);
        free = tip + 14 + text.length * LETTER_PX;
      }
    };
    for (const { at, length, label, finding } of [...lane.marks].sort((a, b) => a.at - b.at)) {
      mark(at, length, finding === "" ? label : `${finding} ${label}`, colours.accent);
    }
    lane.worst.forEach((call) => mark(call.at, call.length, `${duration(call.length)} in ${nameOf(call.fn)}`, colours.fault));

    // Axis: steps of 1, 2 or 5.
    context.strokeStyle = colours.rule;
    context.fillStyle = colours.quiet;
    const rough = widthNs() / Math.max(2, widthPx / 130);
    const decade = 10 ** Math.floor(Math.log10(rough));
    const tickNs = [1, 2, 5, 10].map((m) => m * decade).find((s) => s >= rough);
    for (let at = Math.ceil(view.from / tickNs) * tickNs; at <= view.to; at += tickNs) {
      context.beginPath();
      context.moveTo(x(at), height - AXIS_PX - 2);
      context.lineTo(x(at), height - AXIS_PX + 4);
      context.stroke();
      const text = moment(at, tickNs);
      const place = Math.min(x(at) + 2, widthPx - text.length * LETTER_PX);
      context.fillText(text, place, height - AXIS_PX + 12);
      if (trace.began !== null) {
        const clock = timeOfDay(at, tickNs);
        context.fillText(clock, Math.min(x(at) + 2, widthPx - clock.length * LETTER_PX), height - AXIS_PX + 25);
      }
    }
    if (marked !== null) {
      const [left, right] = [x(Math.min(...marked)), x(Math.max(...marked))];
      context.fillStyle = colours.link;
      context.globalAlpha = 0.25;
      context.fillRect(left, MARKS_PX, right - left, height - AXIS_PX - MARKS_PX);
      context.globalAlpha = 1;
    }
    if (cursorNs >= view.from && cursorNs <= view.to) {
      context.strokeStyle = colours.ink;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(x(cursorNs), MARKS_PX);
      context.lineTo(x(cursorNs), height - AXIS_PX);
      context.stroke();
      context.setLineDash([]);
    }
  }

  // The innermost call at the cursor, where the page carries single calls.
  function sliceHere(lane) {
    const windows = lane.windows.filter((w) => cursorNs >= w.first && cursorNs <= w.last);
    const inside = windows.flatMap((w) => w.slices.filter((s) => s.from <= cursorNs && s.to >= cursorNs));
    return inside.filter((s) => !(s.isCut && s.depth === 0)).sort((a, b) => b.depth - a.depth)[0];
  }

  // What lies at the cursor: a heading and lines.
  function linesHere() {
    const lane = lanes[cursorLane];
    const { line } = lane;
    const clock = trace.began === null ? "" : `, ${timeOfDay(cursorNs, widthNs() / 1000)} UTC`;
    const heading = `${line.name} at ${moment(cursorNs, widthNs() / 1000)}${clock}`;
    const bucket = Math.floor((cursorNs - line.start) / line.width);
    if (bucket < 0 || bucket >= line.events.length) {
      return [heading, "the thread has no events here"];
    }
    const parts = [];
    const nearNs = (widthNs() / Math.max(lane.canvas.clientWidth, 1)) * 5;
    const isHere = (at, length) => cursorNs >= at - nearNs && cursorNs <= at + length + nearNs;
    for (const [at, length, thread, events] of trace.holes) {
      if ((thread < 0 || thread === line.thread) && isHere(at, length)) {
        parts.push(`hole: ${holeWords(length, events)}`);
      }
    }
    for (const call of lane.worst.filter((c) => isHere(c.at, c.length))) {
      parts.push(`${duration(call.length)} in ${nameOf(call.fn)} without an event: ${call.cause}`);
    }
    const marksHere = lane.marks.filter((m) => isHere(m.at, m.length)).map((m) => `${m.finding} ${m.label}`.trim());
    for (const words of new Set(marksHere)) {
      const times = marksHere.filter((other) => other === words).length;
      parts.push(times > 1 ? `${words} (${times} marks)` : words);
    }
    const slice = sliceHere(lane);
    if (slice !== undefined) {
      parts.push(`${sliceName(slice)} for ${duration(slice.to - slice.from)}${slice.isCut ? " (seen in part)" : ""}`);
      parts.push(...(slice.kind === "enter" ? figuresOf(slice.index) : []));
    }
    const shares = Object.keys(line.shares).map(Number).map((layer) => [layer, line.shares[layer][bucket] / 1000]);
    const large = shares.filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]);
    parts.push(large.map(([layer, share]) => `${trace.layers[layer]} ${percent(share)}`).join(", ") || "not traced");
    const top = line.top[bucket];
    const most = [];
    for (let at = 0; at + 1 < top.length; at += 2) {
      most.push(`${nameOf(top[at])} ${percent(top[at + 1] / 1000)}`);
    }
    if (most.length > 0) {
      parts.push(`most in ${most.join(", ")}`);
    }
    const packets = lane.packetsMax > 0 ? `, ${count(line.packets[bucket])} packets` : "";
    parts.push(`${count(line.events[bucket])} events${packets} in ${duration(line.width)}`);
    return [heading, ...parts];
  }

  function tell() {
    const [heading, ...parts] = linesHere();
    reading.textContent = `${heading}: ${parts.join("; ")}`;
  }

  function point(ns, lane) {
    cursorNs = Math.min(Math.max(ns, 0), trace.length);
    cursorLane = lane;
    if (cursorNs < view.from || cursorNs > view.to) {
      setView(cursorNs - widthNs() / 2, cursorNs + widthNs() / 2);
    }
    tell();
    redraw();
  }

  function toWorst(step) {
    if (trace.worst.length === 0) {
      reading.textContent = "No stretch without an event is long enough to be listed.";
      return;
    }
    worstAt = turned(worstAt, step, trace.worst.length);
    const call = trace.worst[worstAt];
    show(call.at, call.length, call.thread);
    point(call.at + call.length / 2, cursorLane);
    const stack = call.stack.map(nameOf).join(" \u203a ");
    reading.textContent = `${worstAt + 1} of the ${trace.worst.length} worst: ${duration(call.length)} in ${nameOf(call.fn)} at ${moment(call.at, 1000)}, ${call.cause}; stack ${stack}`;
  }

  function toMark(step) {
    if (trace.marks.length === 0) {
      reading.textContent = "No finding points to a place in the trace.";
      return;
    }
    markAt = turned(markAt, step, trace.marks.length);
    const mark = trace.marks[markAt];
    show(mark.at, Math.max(mark.length, trace.length / 500), mark.thread);
    point(mark.at, cursorLane);
    reading.textContent = `${markAt + 1} of ${trace.marks.length} marks: ${mark.finding} ${mark.label}, ${mark.length > 0 ? `${duration(mark.length)} long ` : ""}at ${moment(mark.at, 1000)}`;
  }

  function toPlace(step) {
    if (places.length > 0) {
      placeAt = turned(placeAt, step, places.length);
      const [at, length, thread] = places[placeAt];
      show(at, Math.max(length, trace.length / 2_000), thread);
      point(at + length / 2, cursorLane);
      found.textContent = `${count(placeAt + 1)} of ${count(places.length)}`;
    }
  }

  // The call at the cursor over the whole width; else the bucket there.
  function fit() {
    const lane = lanes[cursorLane];
    const slice = cursorNs < 0 ? undefined : sliceHere(lane);
    if (slice !== undefined) {
      show(slice.from, slice.to - slice.from, lane.line.thread);
    } else if (cursorNs >= 0) {
      show(cursorNs - lane.line.width / 2, lane.line.width, lane.line.thread);
    }
  }

  // Places where a function took most of a bucket, and calls of it that the page carries.
  function placesOf() {
    const all = [];
    for (const { line, windows } of lanes) {
      let wasMatch = false;
      line.top.forEach((top, bucket) => {
        const isMatch = wanted.has(top[0]);
        if (isMatch && !wasMatch) {
          all.push([line.start + bucket * line.width, line.width, line.thread]);
        }
        wasMatch = isMatch;
      });
      for (const slice of windows.flatMap((window) => window.slices)) {
        if (slice.kind === "enter" && wanted.has(slice.index)) {
          all.push([slice.from, slice.to - slice.from, line.thread]);
        }
      }
    }
    return all.sort((a, b) => a[0] - b[0]);
  }

  search.addEventListener("input", () => {
    wanted = functionsNamed(search.value);
    places = wanted === null ? [] : placesOf();
    placeAt = -1;
    if (wanted === null) {
      found.textContent = "";
    } else if (wanted.size === 0) {
      found.textContent = "no function of that name";
    } else if (places.length === 0) {
      found.textContent = `${count(wanted.size)} functions of that name, none most of the time anywhere: see the table`;
    } else {
      found.textContent = `${count(places.length)} places; Enter goes to the next, Shift-Enter back`;
    }
    redraw();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      toPlace(event.shiftKey ? -1 : 1);
    }
  });

  const whole = () => setView(0, trace.length);
  // By keys, too, what is looked at stays where it is.
  const middle = () => (cursorNs >= view.from && cursorNs <= view.to ? cursorNs : (view.from + view.to) / 2);
  const keys = {
    w: () => zoom(0.5, middle()), "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()),
    s: () => zoom(2, middle()), "-": () => zoom(2, middle()),
    a: () => pan(-0.25), d: () => pan(0.25), f: fit, 0: whole,
    m: () => toWorst(1), M: () => toWorst(-1), n: () => toMark(1), p: () => toMark(-1),
  };
  const focusKeys = { PageUp: () => pan(-0.9), PageDown: () => pan(0.9), Home: whole, Escape: whole };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || event.defaultPrevented) {
      return;
    }
    const key = getKey(event);
    if (keys[key] !== undefined && isOnScreen(chart)) {
      event.preventDefault();
      keys[key]();
    }
  });
  // With caps lock letters are still keys, only M has a meaning of its own.
  function getKey(event) {
    return event.key.length > 1 || event.key === "M" && event.shiftKey ? event.key : event.key.toLowerCase();
  }

  lanes.forEach((lane, order) => {
    const { canvas } = lane;
    const nsAt = (event) => {
      const place = canvas.getBoundingClientRect();
      return view.from + ((event.clientX - place.left) / place.width) * widthNs();
    };
    canvas.addEventListener("wheel", (event) => {
      // Without focus the wheel scrolls the page, as everywhere; so it does where there is nothing more to zoom out to.
      const isOut = event.deltaY > 0 && widthNs() >= trace.length && !event.ctrlKey && !event.shiftKey;
      if (event.ctrlKey || (document.activeElement === canvas && !isOut)) {
        event.preventDefault();
        hideReadOut();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          pan((event.deltaX || event.deltaY) / 1000);
        } else {
          zoom(event.deltaY > 0 ? 1.25 : 0.8, nsAt(event));
        }
      }
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) {
        return;
      }
      dragged = { x: event.clientX, at: nsAt(event), from: view.from, to: view.to, isMarking: event.shiftKey };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged === null) {
        point(nsAt(event), order);
        readAt(event, linesHere().join("\n"));
      } else if (dragged.isMarking) {
        marked = [dragged.at, Math.min(Math.max(nsAt(event), view.from), view.to)];
        readAt(event, `${duration(Math.abs(marked[1] - marked[0]))}\nlet go to zoom`);
        redraw();
      } else {
        hideReadOut();
        const moved = ((dragged.x - event.clientX) / canvas.clientWidth) * (dragged.to - dragged.from);
        setView(dragged.from + moved, dragged.to + moved);
      }
    });
    canvas.addEventListener("pointerleave", hideReadOut);
    canvas.addEventListener("pointerup", (event) => {
      if (dragged !== null && marked !== null && Math.abs(event.clientX - dragged.x) > 3) {
        setView(Math.min(...marked), Math.max(...marked));
      }
    });
    for (const over of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(over, () => {
        [dragged, marked] = [null, null];
        redraw();
      });
    }
    canvas.addEventListener("dblclick", (event) => zoom(0.25, nsAt(event)));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        return;
      }
      const stepNs = widthNs() / 100;
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        event.preventDefault();
        const from = cursorNs < view.from || cursorNs > view.to ? (view.from + view.to) / 2 : cursorNs;
        point(from + (event.key === "ArrowLeft" ? -stepNs : stepNs) * (event.shiftKey ? 10 : 1), order);
      } else if (focusKeys[event.key] !== undefined) {
        event.preventDefault();
        focusKeys[event.key]();
      }
    });
  });
  leaveSearch(search, lanes[0].canvas);
  const buttons = {
    "chart-in": () => zoom(0.5, middle()), "chart-out": () => zoom(2, middle()), "chart-left": () => pan(-0.5),
    "chart-right": () => pan(0.5), "chart-all": whole, "chart-worst": () => toWorst(1), "chart-mark": () => toMark(1),
  };
  for (const [id, act] of Object.entries(buttons)) {
    document.getElementById(id).addEventListener("click", act);
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      lanes.find((lane) => lane.canvas === entry.target).isSeen = entry.isIntersecting;
    }
    redraw();
  }, { rootMargin: "200px" });
  lanes.forEach((lane) => seen.observe(lane.canvas));
  window.addEventListener("beforeprint", () => lanes.forEach((lane) => {
    lane.isSeen = true;
    drawLane(lane);
  }));

  // Links to evidence, #at-THREAD-NS-LENGTH, and to a view that was kept, #view-FROM-TO.
  function follow() {
    const at = /^#at-(-?\d+)-(\d+)-(\d+)$/.exec(location.hash);
    const kept = /^#view-(\d+)-(\d+)$/.exec(location.hash);
    if (at !== null) {
      const [thread, ns, length] = at.slice(1).map(Number);
      show(ns, Math.max(length, trace.length / 2_000), thread);
      point(ns, cursorLane);
      lanes[cursorLane].canvas.parentElement.scrollIntoView({ block: "center" });
    } else if (kept !== null) {
      setView(Number(kept[1]), Number(kept[2]));
      chart.scrollIntoView({ block: "center" });
    }
  }
  window.addEventListener("hashchange", follow);
  // The same link twice changes no hash.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#at-']");
    if (link !== null && link.getAttribute("href") === location.hash) {
      follow();
    }
  });
  onEveryLook(redraw);
  // The busiest thread may have filled its buffers in the first moments: there is what there is to see.
  const { first, last } = trace.timelines[0];
  const isShort = (last - first) * 2 < trace.length;
  setView(isShort ? first : 0, isShort ? last : trace.length);
  isKept = true;
  follow();
}

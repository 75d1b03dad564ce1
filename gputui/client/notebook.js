// A cluster, live in a cell. The model has columns of numbers with a place for each GPU (or CPU
// worker), and `at`, the second that they are of. Texts come from hosts: they go in as text only.

const SECONDS = 60;
const PING_MS = 10_000;
const STALE_MS = 8_000;
const MOST_ROWS = 12;
const SVG = "http://www.w3.org/2000/svg";

function make(parent, tag, kind, text = "") {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.textContent = text;
  parent.append(node);
  return node;
}

function draw(parent, tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const number = (value, unit) => (value === null || value === undefined ? "–" : `${value}${unit}`);
const plural = (count, word) => `${count.toLocaleString()} ${word}${count === 1 ? "" : "s"}`;

// An area under values of 0 to 100, the newest at the right; a gap where nothing was read.
function area(values) {
  let path = "";
  let open = false;
  values.forEach((value, index) => {
    const x = SECONDS - values.length + index;
    if (value === null) {
      if (open) path += `L${x},100Z`;
      open = false;
    } else {
      path += open ? `L${x},${100 - value}` : `M${x},100L${x},${100 - value}`;
      open = true;
    }
  });
  return open ? `${path}L${SECONDS - 1},100Z` : path;
}

function spark(parent, kind) {
  const box = draw(parent, "svg", {
    class: kind, viewBox: `0 0 ${SECONDS - 1} 100`, preserveAspectRatio: "none",
  });
  return draw(box, "path", {});
}

function bar(parent) {
  return make(make(parent, "div", "bar"), "div");
}

// Figures of runs: a line, bars or a heat map, as `gputui.presets.Figure` describes them.
function figure(parent, given) {
  make(parent, "div", "title", given.title);
  if (given.kind === "bar") {
    const most = Math.max(...given.y.map(Math.abs)) || 1;
    const rows = make(parent, "div", "bars");
    given.labels.forEach((label, index) => {
      make(rows, "span", "", label);
      bar(rows).style.width = `${(100 * Math.abs(given.y[index])) / most}%`;
      make(rows, "span", "figure", given.y[index].toPrecision(4));
    });
  } else if (given.kind === "line") {
    const scale = given.logarithmic ? Math.log10 : (value) => value;
    const x = given.x, y = given.y.map(scale);
    const [left, right] = [Math.min(...x), Math.max(...x)];
    const [low, high] = [Math.min(...y), Math.max(...y)];
    const box = draw(parent, "svg", { class: "line", viewBox: "0 0 400 120" });
    const points = x.map((at, index) => {
      const across = 5 + (390 * (at - left)) / (right - left || 1);
      return `${across},${115 - (110 * (y[index] - low)) / (high - low || 1)}`;
    });
    draw(box, "polyline", { points: points.join(" ") });
    if (points.length === 1) draw(box, "circle", { cx: 200, cy: 60, r: 3 });
    const ends = [Math.min(...given.y), Math.max(...given.y)].map((end) => end.toPrecision(4));
    make(parent, "div", "dim", `${given.y_label} ${ends.join(" to ")}; ${given.x_label} ` +
      `${left.toLocaleString()} to ${right.toLocaleString()}`);
  } else {
    const known = given.matrix.flat().filter((value) => value !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const grid = make(parent, "div", "matrix");
    grid.style.gridTemplateColumns = `repeat(${given.matrix[0].length}, 1.6em)`;
    for (const value of given.matrix.flat()) {
      const cell = make(grid, "div", "cell");
      if (value === null) continue;
      cell.style.setProperty("--busy", `${(100 * (value - low)) / (high - low || 1)}%`);
      cell.title = value.toPrecision(4);
    }
    make(parent, "div", "dim", `${given.y_label} ${low.toPrecision(4)} to ${high.toPrecision(4)}`);
  }
}

class Fleet {
  constructor(model, root) {
    this.model = model;
    this.past = [];
    this.heardAt = Date.now();
    this.wanted = null;
    root.classList.add("gputui");
    const head = make(root, "div", "head");
    this.name = make(head, "b");
    this.state = make(head, "span", "state");
    const scale = make(head, "span", "scale");
    this.fewer = this.button(scale, "−", "One worker fewer; its results are moved first", -1);
    this.workers = make(scale, "span");
    this.more = this.button(scale, "+", "One worker more", +1);
    this.tasks = make(head, "span", "dim");
    this.mean = spark(head, "spark mean");
    this.meanText = make(head, "span", "figure");
    this.kind = make(head, "button", "kind");
    this.kind.onclick = () => {
      this.heat = !this.heat;
      this.arrange();
      this.update();
    };
    make(root, "style", "", `.${this.get("still")} { display: none; }`);
    this.said = make(root, "div", "said");
    this.alarms = make(root, "div", "alarms");
    this.body = make(root, "div", "body");
    this.runs = make(root, "div", "runs");
    this.figure = make(root, "div", "drawn");
    this.takePast();
    this.arrange();
  }

  get(name) {
    return this.model.get(name);
  }

  button(parent, text, title, by) {
    const button = make(parent, "button", "", text);
    button.title = title;
    button.onclick = () => {
      this.wanted = Math.max(0, (this.wanted ?? this.get("about").wanted) + by);
      this.model.send({ scale: this.wanted });
      this.update();
    };
    return button;
  }

  // Take what the kernel knows of the last minute: a text a second, a character a place.
  takePast() {
    this.past = this.get("past").map((row) =>
      [...row].map((each) => (each === "-" ? null : 2 * (each.charCodeAt(0) - 48))));
  }

  heard() {
    const gap = Math.min(SECONDS, Math.round((Date.now() - this.heardAt) / 1000) - 1);
    const nothing = this.get("busy").map(() => null);
    for (let lost = 2; lost < gap; lost++) this.past.push(nothing);
    this.past.push(this.get("busy"));
    this.past = this.past.slice(-SECONDS);
    this.heardAt = Date.now();
    if (this.wanted === this.get("about").wanted) this.wanted = null;
  }

  // Make a row or a cell for each place.
  arrange() {
    const places = this.get("fleet").places;
    this.heat ??= places.length > MOST_ROWS;
    set(this.kind, this.heat ? "rows" : "heat");
    this.body.replaceChildren();
    this.body.className = this.heat ? "body cells" : "body rows";
    this.parts = [];
    let host, cells;
    if (!this.heat && places.length) {
      const titles = ["", "busy", "", "memory", "", "power", "", "tasks", ""];
      for (const title of titles) make(this.body, "span", "dim", title);
    }
    places.forEach(([name, label, model, gib], index) => {
      if (this.heat) {
        if (name !== host) {
          make(this.body, "span", "host", name).title = name;
          cells = make(this.body, "div", "host-cells");
        }
        const cell = make(cells, "div", "cell");
        cell.onmouseenter = () => (cell.title = this.about(index));
        this.parts.push({ cell });
      } else {
        const place = make(this.body, "span", "place", `${name}:${label}`);
        place.title = model;
        const busy = spark(this.body, "spark");
        const figures = { busy: make(this.body, "span", "figure") };
        const memory = bar(this.body);
        for (const each of ["memory", "watts", "degrees", "tasks"]) {
          figures[each] = make(this.body, "span", "figure");
        }
        this.parts.push({ busy, memory, figures, state: make(this.body, "span", "state") });
      }
      host = name;
    });
  }

  about(index) {
    const [host, label, model, gib] = this.get("fleet").places[index];
    const value = (name, unit) => number(this.get(name)[index], unit);
    return [
      `${host}:${label} ${this.stateOf(index)}`, model, `${value("busy", " %")} busy`,
      `${value("memory", " %")} of ${number(gib, " GiB")}`, value("watts", " W"),
      value("degrees", " °C"), `${value("tasks", "")} tasks`,
    ].join("\n");
  }

  stateOf(index) {
    return this.get("fleet").states[this.get("states")[index]];
  }

  update() {
    const about = this.get("about");
    const quiet = Date.now() - this.heardAt;
    const stale = quiet > STALE_MS || about.ended;
    this.body.parentNode.classList.toggle("stale", Boolean(stale));
    set(this.name, about.name);
    const since = new Date(1000 * this.get("at")).toLocaleTimeString();
    set(this.state, stale ? about.ended || `no news since ${since}` : about.state);
    const wanted = this.wanted ?? about.wanted;
    const of = wanted === about.up ? "" : ` of ${wanted}`;
    set(this.workers, `${about.up}${of} ${about.up === 1 && !of ? "worker" : "workers"}`);
    this.workers.classList.toggle("waiting", this.wanted !== null);
    this.fewer.disabled = this.more.disabled = Boolean(stale);
    const queued = about.waiting ? `, ${about.waiting.toLocaleString()} waiting` : "";
    set(this.tasks, `${plural(about.running, "task")} running${queued}`);
    set(this.said, this.get("said"));
    this.updateMean();
    this.updateAlarms();
    this.parts.forEach((part, index) =>
      this.heat ? this.updateCell(part.cell, index) : this.updateRow(part, index));
    this.updateRuns();
  }

  updateMean() {
    const means = this.past.map((row) => {
      const known = row.filter((value) => value !== null);
      return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
    });
    this.mean.setAttribute("d", area(means));
    const newest = means.length ? means[means.length - 1] : null;
    set(this.meanText, newest === null ? "" : `${Math.round(newest)} % busy`);
  }

  updateAlarms() {
    const alarms = this.get("alarms");
    if (this.alarmsShown === alarms) return;
    this.alarmsShown = alarms;
    this.alarms.replaceChildren();
    for (const [serious, text] of alarms) {
      make(this.alarms, "span", serious ? "alarm serious" : "alarm", text);
    }
  }

  updateCell(cell, index) {
    const busy = this.get("busy")[index];
    set(cell, number(busy, ""));
    cell.style.setProperty("--busy", `${busy ?? 0}%`);
    cell.className = `cell is-${this.stateOf(index)}`;
  }

  updateRow({ busy, memory, figures, state }, index) {
    busy.setAttribute("d", area(this.past.map((row) => row[index] ?? null)));
    memory.style.width = `${this.get("memory")[index] ?? 0}%`;
    const units = { busy: " %", memory: " %", watts: " W", degrees: " °C", tasks: "" };
    for (const [name, node] of Object.entries(figures)) {
      set(node, number(this.get(name)[index], units[name]));
    }
    set(state, this.stateOf(index));
    state.className = `state is-${this.stateOf(index)}`;
  }

  updateRuns() {
    const runs = this.get("runs"), figures = this.get("figures");
    if (this.runsShown === runs && this.figuresShown === figures) return;
    [this.runsShown, this.figuresShown] = [runs, figures];
    this.runs.replaceChildren();
    for (const run of runs) {
      const line = make(this.runs, "div", `run is-${run.state}`);
      make(line, "b", "", run.preset);
      make(line, "span", "state", run.state);
      if (run.total) bar(line).style.width = `${(100 * run.done) / run.total}%`;
      make(line, "span", "dim", run.text);
      if (!(run.id in figures)) continue;
      make(line, "button", "", "figure").onclick = () => {
        this.picked = this.picked === run.id ? "" : run.id;
        this.updateFigure();
      };
    }
    this.updateFigure();
  }

  // Draw the figure that was picked, none if it was picked once more; at first the newest.
  updateFigure() {
    const figures = this.get("figures");
    const newest = this.get("runs").find((run) => run.id in figures);
    const given = figures[this.picked ?? newest?.id];
    if (this.drawn === given) return;
    this.drawn = given;
    this.figure.replaceChildren();
    if (given) figure(this.figure, given);
  }
}

function render({ model, el }) {
  const fleet = new Fleet(model, make(el, "div"));
  let inView = true;
  const visible = () => inView && !document.hidden;
  let frame = 0;
  const update = () => {
    if (!visible() || frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      fleet.update();
    });
  };
  const ping = () => visible() && model.send({ seen: true });
  const listeners = {
    "change:at": () => { fleet.heard(); update(); },
    "change:fleet": () => { fleet.arrange(); update(); },
    "change:past": () => { fleet.takePast(); update(); },
    "change:about": update,
    "change:said": update,
    "change:figures": update,
  };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  const appeared = () => { ping(); update(); };
  const observer = new IntersectionObserver(([entry]) => {
    inView = entry.isIntersecting;
    appeared();
  });
  observer.observe(el);
  document.addEventListener("visibilitychange", appeared);
  const timers = [setInterval(ping, PING_MS), setInterval(update, STALE_MS / 2)];
  model.send({ seen: true, past: true });
  fleet.update();
  return () => {
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
    observer.disconnect();
    document.removeEventListener("visibilitychange", appeared);
    timers.forEach(clearInterval);
    cancelAnimationFrame(frame);
  };
}

export default { render };

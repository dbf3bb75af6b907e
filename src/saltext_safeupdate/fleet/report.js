"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const BAD = ["rolled_back", "failed", "refused", "timed_out", "superseded"];
  const WORK = ["asked", "updating", "to_reboot"];
  const kind = (step) =>
    BAD.includes(step) ? "bad" : WORK.includes(step) ? "work" : step === "done" ? "done" : "wait";
  const words = (step) => step.replaceAll("_", " ");
  const time = (at) => at.replace("T", " ").replace("+00:00", " UTC");
  const long = (s) =>
    s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const fill = (body, cells) => {
    const row = make("tr");
    for (const cell of cells) row.append(cell instanceof Node ? cell : make("td", cell));
    body.append(row);
    return row;
  };

  // -- what stands above the rows ------------------------------------------------------------
  const s = data.summary;
  const goal = [s.back && `back from ${s.back}`, s.version && `Salt ${s.version}`, s.extension && `extension ${s.extension}`]
    .filter(Boolean).join(" and ");
  document.title = `Rollout ${s.rollout}: ${s.mode}`;
  get("title").textContent = `Rollout ${s.rollout}: ${s.mode}`;
  get("lead").textContent = `${goal}, begun ${time(s.times.began)}, as of ${time(s.times.looked)}` +
    (s.why ? `. ${s.why}` : "");
  const told = [];
  // What is done first, as in the terminal.
  const place = { done: 0, bad: 1, work: 2, wait: 3 };
  const parts = Object.entries(s.counts).sort(([a], [b]) => place[kind(a)] - place[kind(b)]);
  for (const [step, count] of parts) {
    const part = make("span", "", kind(step));
    part.style.flexGrow = count;
    part.title = `${count} ${words(step)}`;
    told.push(part.title);
    get("bar").append(part);
  }
  get("bar").setAttribute("aria-label", told.join(", "));
  const facts = [["Minions", s.minions], ...Object.entries(s.counts).map(([k, n]) => [words(k), n]),
    ["away or at work", `${s.down} of ${s.may_be_down} allowed`],
    ["may fail", s.may_fail], ["left out", s.left_out],
    ["one minion takes", s.seconds ? long(s.seconds.median) : "not known yet"],
    ["remaining", s.remaining ? `about ${long(s.remaining)}` : "–"]];
  for (const [name, value] of facts) {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value));
    get("facts").append(pair);
  }
  s.waves.forEach((wave, number) => {
    fill(get("waves").tBodies[0], [number + 1, wave.group + (wave.canary ? " (canaries)" : ""),
      wave.minions, wave.done, wave.bad, wave.active, wave.away, wave.state]);
    get("wave").append(new Option(`${number + 1}: ${wave.group}`, number + 1));
  });
  for (const [phase, usual] of Object.entries(data.durations)) {
    fill(get("durations").tBodies[0], [words(phase), usual.count, long(usual.mean),
      long(usual.median), long(usual.longest)]);
  }
  get("durations").closest("section").hidden = !Object.keys(data.durations).length;
  for (const [minion, why] of Object.entries(data.left_out)) {
    get("left").append(make("li", `${minion}: ${why}`));
  }
  get("left").closest("section").hidden = !Object.keys(data.left_out).length;
  for (const [n, [, line]] of data.history.entries()) {
    get("history").append(make("li", `${time(s.times.history[n])}  ${line}`));
  }

  // -- rows, of which only those in sight exist ----------------------------------------------
  const HEIGHT = 28, MORE = 20;
  const body = get("minions").tBodies[0];
  const view = get("rows");
  // Problems first; the order of the waves otherwise.
  const rank = { bad: 0, work: 1, wait: 2, done: 3 };
  for (const m of data.minions) {
    if (m.away && m.step === "waiting" && !m.reason) m.reason = "does not answer";
  }
  data.minions.sort((a, b) => rank[kind(a.step)] - rank[kind(b.step)]);
  const end = Math.max(1, ...data.minions.map((m) => (m.asked ?? 0) + m.seconds), data.elapsed);
  let shown = data.minions, sorted = { key: "", up: true }, whole = false;

  const line = (m) => {
    const cell = make("td"), bar = make("div", undefined, "line");
    if (m.asked !== null) {
      const part = make("span", undefined, kind(m.step));
      part.style.left = `${(100 * m.asked) / end}%`;
      part.style.width = `${(100 * (m.seconds || data.elapsed - m.asked)) / end}%`;
      bar.append(part);
      cell.title = `from ${long(m.asked)} on, for ${long(m.seconds || data.elapsed - m.asked)}`;
    }
    cell.append(bar);
    return cell;
  };
  // All that is known of one minion: rows cut long reasons off.
  const whole_of = (m) => [`${m.minion}: ${words(m.step)}`, m.phase && `phase ${words(m.phase)}`,
    ...Object.entries(m.phases).map(([phase, took]) => `${words(phase)} ${long(took)}`), m.reason]
    .filter(Boolean).join(", ");
  const gap = (rows) => {
    const row = make("tr"), cell = make("td");
    cell.colSpan = 7;
    cell.style.height = `${rows * HEIGHT}px`;
    cell.style.padding = 0;
    row.append(cell);
    row.setAttribute("aria-hidden", "true");
    return row;
  };
  const draw = () => {
    const count = whole ? shown.length : Math.ceil(view.clientHeight / HEIGHT) + 2 * MORE;
    const above = Math.min(Math.floor(view.scrollTop / HEIGHT) - MORE, shown.length - count);
    const first = whole ? 0 : Math.max(0, above);
    const focus = document.activeElement?.dataset?.name;
    body.replaceChildren();
    if (first) body.append(gap(first));
    for (const m of shown.slice(first, first + count)) {
      const name = make("td", m.minion);
      const step = make("td", words(m.step) + (m.away ? ", away" : ""),
        m.away && kind(m.step) !== "bad" ? "t-away" : `t-${kind(m.step)}`);
      const row = fill(body, [name, m.wave, step, m.version, m.seconds ? Math.round(m.seconds) : "",
        line(m), m.reason]);
      row.lastChild.title = m.reason;
      row.tabIndex = -1;
      row.dataset.name = m.minion;
      row.addEventListener("focus", () => { get("told").textContent = whole_of(m); });
      if (m.minion === focus) row.focus({ preventScroll: true });
    }
    const rest = shown.length - first - count;
    if (rest > 0) body.append(gap(rest));
  };
  const drawn = (name) => [...body.rows].find((row) => row.dataset.name === name);
  const go = (from, by) => {
    const at = Math.max(0, shown.findIndex((m) => m.minion === from) + by);
    if (at >= shown.length) return;
    if (!drawn(shown[at].minion)) {
      view.scrollTop = at * HEIGHT - view.clientHeight / 2;
      draw();
    }
    drawn(shown[at].minion).focus({ preventScroll: true });
    document.activeElement.scrollIntoView({ block: "nearest" });
  };
  const choose = () => {
    const text = get("search").value.toLowerCase(), wave = get("wave").value;
    const steps = new Set([...get("steps").querySelectorAll("input:checked")].map((i) => i.value));
    shown = data.minions.filter((m) =>
      (!text || `${m.minion} ${m.reason}`.toLowerCase().includes(text)) &&
      (!wave || m.wave === Number(wave)) && (!steps.size || steps.has(m.step)));
    if (sorted.key) {
      const way = sorted.up ? 1 : -1, key = sorted.key;
      shown = [...shown].sort((a, b) => way * (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0));
    }
    get("shown").textContent = `${shown.length} of ${data.minions.length}`;
    view.scrollTop = 0;
    draw();
  };
  for (const step of Object.keys(s.counts)) {
    const label = make("label"), box = make("input");
    box.type = "checkbox";
    box.value = step;
    label.append(box, ` ${words(step)}`);
    get("steps").append(label);
  }
  const reasons = new Map();
  for (const m of data.minions) {
    if (!["done", "work"].includes(kind(m.step)) && m.reason) {
      const words = m.reason.slice(0, 200);
      reasons.set(words, (reasons.get(words) || 0) + 1);
    }
  }
  for (const [reason, count] of [...reasons].sort((a, b) => b[1] - a[1])) {
    const item = make("li"), button = make("button", `${count} ×`);
    button.type = "button";
    button.addEventListener("click", () => {
      get("search").value = reason;
      choose();
      view.focus();
    });
    item.append(button, reason);
    get("reasons").append(item);
  }
  if (!reasons.size) get("reasons").append(make("li", "nothing"));

  // -- a person's hands ----------------------------------------------------------------------
  get("filter").addEventListener("input", choose);
  get("filter").addEventListener("submit", (event) => event.preventDefault());
  view.addEventListener("scroll", () => requestAnimationFrame(draw));
  for (const button of document.querySelectorAll("[data-key]")) {
    button.addEventListener("click", () => {
      const key = button.dataset.key;
      sorted = { key, up: sorted.key === key ? !sorted.up : true };
      for (const other of document.querySelectorAll("th")) other.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
      choose();
    });
  }
  get("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.classList.contains("dark") || (!root.classList.contains("light") &&
      matchMedia("(prefers-color-scheme: dark)").matches);
    root.classList.toggle("dark", !dark);
    root.classList.toggle("light", dark);
  });
  addEventListener("keydown", (event) => {
    const writes = event.target.matches("input, select");
    if (event.key === "/" && !writes) {
      event.preventDefault();
      get("search").focus();
    } else if (event.key === "Escape") {
      get("filter").reset();
      sorted = { key: "", up: true };
      for (const other of document.querySelectorAll("th")) other.removeAttribute("aria-sort");
      choose();
    } else if (["ArrowDown", "ArrowUp"].includes(event.key) && view.contains(event.target)) {
      event.preventDefault();
      go(event.target.dataset.name, event.key === "ArrowDown" ? 1 : -1);
    }
  });
  addEventListener("beforeprint", () => { whole = true; draw(); });
  addEventListener("afterprint", () => { whole = false; draw(); });
  choose();
})();

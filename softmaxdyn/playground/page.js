"use strict";
/* The page: what the controls do to the state, and what is shown of it. */
(() => {
  const $ = (id) => document.getElementById(id);
  const STEPS_A_SECOND = 20;
  const BUDGET = 8; // milliseconds of computing in one frame
  const QUANTITIES = [
    "entropy", "expectedReturn", "change", "lemma1", "theorem1", "theorem2", "remainder", "bound", "kl", "certified",
    "selected",
  ];
  const EXAMPLES = {
    plateau: "#z=-2.9957,-4.6052,-0.0619&r=1,0.9,0.1&eta=0.4",
    rise: "#z=1.5,0.4,-1&r=0.2,0,1&eta=0.5&region=pg",
    klcov: "#z=1,0.3,-0.5&r=1,0.5,0&eta=0.5&method=kl_cov&inner=1&n.fraction=0.5",
    sampled: "#z=0,0,0&r=1,0.9,0&eta=0.3&method=grpo&mode=sampled&groups=1&size=8&seed=1&at=60&fit=on",
    reference: "#z=-1,0,1&r=1,0.5,0&eta=0.5&method=reference_kl&n.coefficient=0.5&ref=-1,0,1&at=30",
  };
  const FIELDS = ["stepSize", "inner", "groups", "size", "seed"];
  const OWN = ["coefficient", "fraction", "low", "high", "smallest"];

  let state;
  let run;
  let rows;
  let playing = false;
  let pending = false;
  let lastStep = 0;
  let known = null; // the fragment that the state came from, or went to
  let arms = []; // the cells of each row of the table of arms
  let shownWords = "";
  const timers = {};
  const frames = { count: 0, busy: 0, longest: 0 }; // read by experiments/playground/frames.py

  // Words and numbers

  const language = () => (state.lang === "auto" ? (navigator.language.startsWith("zh") ? "zh" : "en") : state.lang);
  const word = (key, fill = {}) =>
    Object.entries(fill).reduce((text, [name, value]) => text.replaceAll(`{${name}}`, value), Words[language()][key]);

  function shown(x, digits = 5) {
    if (!Number.isFinite(x)) return x === Infinity ? "∞" : "—";
    const size = Math.abs(x);
    if (size === 0) return "0";
    const text = size < 1e-4 || size >= 1e6 ? x.toExponential(digits - 2) : x.toPrecision(digits);
    return text.replaceAll("-", "−");
  }

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function setNumber(element, x, digits) {
    setText(element, shown(x, digits));
    element.dataset.value = String(x);
  }

  /** Runs `action` once, `wait` ms after the last call with that name. */
  function later(name, wait, action) {
    clearTimeout(timers[name]);
    timers[name] = setTimeout(action, wait);
  }

  const last = () => rows[rows.length - 1];
  const sampled = () => Core.METHODS[state.method].group && state.mode === "sampled";

  // The run

  /** Computes the run anew, up to the step that is shown or another. */
  function restart(at = state.at) {
    state.at = at;
    if (at === 0) setPlaying(false);
    run = State.runOf(state);
    rows = [Core.observe(run, 0, run.logits)];
    changed();
  }

  function changed() {
    later("url", 250, writeUrl);
    later("said", 700, say);
    schedule();
  }

  function schedule() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(onFrame);
  }

  function onFrame(time) {
    pending = false;
    const begin = performance.now();
    if (playing && time - lastStep >= 1000 / STEPS_A_SECOND && rows.length > state.at) {
      lastStep = time;
      goOn();
    }
    while (rows.length <= state.at && performance.now() - begin < BUDGET) {
      rows.push(Core.observe(run, rows.length, Core.next(last())));
    }
    render();
    frames.count += 1;
    frames.busy += performance.now() - begin;
    frames.longest = Math.max(frames.longest, performance.now() - begin);
    if (playing || rows.length <= state.at) schedule();
  }

  function goOn() {
    if (state.at >= State.LIMITS.at[1]) setPlaying(false);
    else state.at += 1;
    changed();
  }

  /** Shows an earlier step, or computes on to a later one. */
  function goTo(at) {
    setPlaying(false);
    rows.length = Math.min(rows.length, at + 1);
    state.at = at;
    changed();
    return "";
  }

  function setPlaying(on) {
    playing = on;
    $("play").setAttribute("aria-pressed", String(on));
    setText($("play"), word(on ? "pause" : "play"));
  }

  function setPolicy(p, digits = 4) {
    state.logits = rounded(p.map(Math.log), digits);
    restart(0);
  }

  /** π_a = p, the others in their old proportions. */
  function setProbability(a, p, digits) {
    const wanted = Math.min(Math.max(p, 1e-6), 1 - 1e-6);
    const { prob } = last().policy;
    const others = Math.max(prob.reduce((total, value, b) => total + (b === a ? 0 : value), 0), Number.MIN_VALUE);
    setPolicy(prob.map((value, b) => (b === a ? wanted : Math.max((value / others) * (1 - wanted), 1e-9))), digits);
  }

  /** log π of the policy now, as the logits of a new start: within the limits of a link. */
  const logProbs = () => last().policy.logProb.map((value) => Math.max(value, State.LIMITS.logit[0]));
  const rounded = (values, digits) => values.map((value) => Number(value.toFixed(digits)) + 0);

  function setCount(count) {
    const logits = logProbs();
    const mean = logits.reduce((a, b) => a + b, 0) / logits.length;
    state.logits = rounded(Array.from({ length: count }, (_, a) => logits[a] ?? mean), 4);
    state.rewards = state.logits.map((_, a) => state.rewards[a] ?? 0);
    state.reference = null;
    if (/^arm/.test(state.region) && count !== 3) state.region = "none";
    fillControls();
    restart(0);
  }

  // The URL

  function writeUrl() {
    if (location.hash !== known) {
      followUrl(); // a link was pasted a moment ago: it wins
      return;
    }
    try {
      history.replaceState(null, "", State.write(state));
    } catch {
      location.hash = State.write(state);
    }
    known = location.hash;
    showExample();
  }

  function followUrl() {
    if (location.hash === known) return;
    known = location.hash;
    load(known);
  }

  function load(fragment, kept = {}) {
    const { state: read, ignored } = State.parse(fragment);
    state = { ...read, ...kept };
    restart();
    applyTheme();
    fillControls();
    setNotice(ignored.length ? word("ignored", { names: ignored.join(", ") }) : "");
  }

  function setNotice(text) {
    setText($("notice"), text);
    $("notice").hidden = text === "";
  }

  // Controls

  function options(select, entries, value) {
    select.replaceChildren(...entries.map(([key, text]) => new Option(text, key, false, key === value)));
  }

  function translate() {
    document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
    document.title = word("title");
    for (const element of document.querySelectorAll("[data-t]")) setText(element, word(element.dataset.t));
    for (const element of document.querySelectorAll("[data-label]")) {
      element.setAttribute("aria-label", word(element.dataset.label));
    }
    setPlaying(playing);
  }

  const worded = (prefix, keys) => keys.map((key) => [key, word(`${prefix}_${key}`)]);

  function fillControls() {
    translate();
    options($("example"), [["", word("example_choose")], ...worded("example", Object.keys(EXAMPLES))], "");
    showExample();
    options($("theme"), worded("theme", State.CHOICES.theme), state.theme);
    options($("method"), worded("method", State.CHOICES.method), state.method);
    options($("mode"), worded("mode", State.CHOICES.mode), state.mode);
    options($("arrows"), worded("arrows", State.CHOICES.arrows), state.arrows);
    const regions = State.CHOICES.region.map((key) =>
      [key, key.startsWith("arm") ? word("region_arm", { arm: key.slice(3) }) : word(`region_${key}`)]);
    options($("region"), regions, state.region);
    const counts = Array.from({ length: State.MOST_ARMS - 1 }, (_, i) => [String(i + 2), String(i + 2)]);
    options($("count"), counts, String(state.logits.length));
    $("lang").value = language();
    $("fit").checked = state.fit === "on";
    setText($("about"), word(`about_${state.method}`));
    buildArms();
    buildNumbers();
    showFields();
    shownWords = language();
  }

  /** Names the example that the state is, if it is one. */
  function showExample() {
    const plain = State.write({ ...state, lang: "auto", theme: "auto" });
    const same = (fragment) => State.write(State.parse(fragment).state) === plain;
    $("example").value = Object.keys(EXAMPLES).find((name) => same(EXAMPLES[name])) ?? "";
  }

  function showFields() {
    const show = (selector, wanted) =>
      document.querySelectorAll(selector).forEach((each) => (each.hidden = !wanted(each)));
    show("[data-group]", () => Core.METHODS[state.method].group);
    show("[data-sampled]", sampled);
    show("[data-own]", (each) => each.dataset.own in state.numbers);
    $("set-reference").hidden = state.method !== "reference_kl";
    $("clear-reference").hidden = state.method !== "reference_kl" || !state.reference;
    for (const name of FIELDS) settle($(name), state[name]);
    for (const name of OWN) {
      settle($(`n.${name}`), state.numbers[name]);
      const special = `n_${name}_${state.method}`;
      setText($(`n.${name}`).previousElementSibling, word(special in Words.en ? special : `n_${name}`));
    }
    complain("");
  }

  function complain(text) {
    setText($("complaint"), text);
    $("complaint").hidden = text === "";
  }

  function settle(input, value) {
    input.removeAttribute("aria-invalid");
    if (value !== undefined && document.activeElement !== input) input.value = String(value).replace("-", "−");
  }

  /** A text field of a number: applied while typing when it can be read, else marked; put back when left. */
  function bind(input, limitsOf, valueOf, apply) {
    input.addEventListener("input", () => {
      const [low, high, whole] = limitsOf();
      const value = State.readNumber(input.value, [low, high, whole]);
      const fault = value === null ? word(whole ? "bad_whole" : "bad_field", { low, high }) : apply(value);
      if (fault) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      complain(fault || "");
    });
    input.addEventListener("blur", () => {
      complain("");
      input.removeAttribute("aria-invalid");
      input.value = String(valueOf()).replace("-", "−");
    });
  }

  function setOwn(name, value) {
    const numbers = { ...state.numbers, [name]: value };
    if (state.method === "clip_cov" && numbers.low > numbers.high) return word("order");
    state.numbers = numbers;
    restart();
    return "";
  }

  function setField(name, value) {
    state[name] = value;
    restart();
    return "";
  }

  function choose(name, value) {
    state[name] = value;
    if (name === "method") state.numbers = State.numbersOf(value);
    restart();
    fillControls();
  }

  function look(name, value) {
    state[name] = value;
    applyTheme();
    fillControls();
    changed();
  }

  function applyTheme() {
    document.documentElement.dataset.theme = state.theme;
  }

  async function copy(text) {
    const box = $("python");
    try {
      await navigator.clipboard.writeText(text);
      setNotice(word("copied"));
    } catch {
      $("code").open = true;
      box.value = text;
      box.select();
      setNotice(word(document.execCommand("copy") ? "copied" : "not_copied"));
    }
  }

  // The table of arms

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function buildArms() {
    if (arms.length === state.logits.length && shownWords === language()) {
      arms.forEach((arm, a) => settle(arm.reward, state.rewards[a]));
      return;
    }
    arms = state.logits.map((_, a) => armRow(a));
    $("arms").tBodies[0].replaceChildren(...arms.map((arm) => arm.row));
  }

  function signedCell(name) {
    const fill = element("i");
    const text = element("span", { "data-name": name });
    const bar = element("span", { class: "signed", "aria-hidden": "true" }, fill);
    return { cell: element("td", {}, bar, text), fill, text };
  }

  function armRow(a) {
    const label = { arm: a + 1 };
    const slider = { class: "bar", role: "slider", tabindex: "0", "aria-valuemin": "0", "aria-valuemax": "1" };
    const bar = element("div", { ...slider, "aria-label": word("pi_of", label) }, element("i"), element("b"));
    const field = { inputmode: "decimal", autocomplete: "off" };
    const pi = element("input", { ...field, "aria-label": word("pi_of", label) });
    const reward = element("input", { ...field, "aria-label": word("reward_of", label) });
    const numbers = Object.fromEntries(
      ["advantage", "delta", "after", "logit", "drawn"].map((name) => [name, element("td", { "data-name": name })]));
    const contribution = signedCell("contribution");
    const effect = signedCell("effect");
    numbers.drawn.dataset.sampled = "";
    const edited = [bar, pi, reward].map((each) => element("td", {}, each));
    const head = element("th", { scope: "row" }, String(a + 1));
    const row = element("tr", {}, head, ...edited, contribution.cell, effect.cell, ...Object.values(numbers));
    bindBar(bar, a);
    bind(pi, () => [1e-6, 1 - 1e-6], () => shown(last().policy.prob[a], 4), (p) => setProbability(a, p, 6));
    bind(reward, () => State.LIMITS.reward, () => state.rewards[a], (r) => {
      state.rewards = state.rewards.map((old, b) => (b === a ? r : old));
      restart();
    });
    reward.value = String(state.rewards[a]).replace("-", "−");
    return { row, bar, pi, reward, contribution, effect, ...numbers };
  }

  function bindBar(bar, a) {
    const drag = (event) => {
      const box = bar.getBoundingClientRect();
      setProbability(a, (event.clientX - box.left) / box.width);
    };
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      drag(event);
    });
    bar.addEventListener("pointermove", (event) => bar.hasPointerCapture(event.pointerId) && drag(event));
    bar.addEventListener("keydown", (event) => {
      const ways = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -100, End: 100 };
      const way = ways[event.key];
      if (!way) return;
      event.preventDefault();
      setProbability(a, last().policy.prob[a] + 0.01 * way * (event.shiftKey ? 5 : 1));
    });
  }

  function showSigned({ fill, text }, value, scale) {
    const share = scale > 0 ? Math.abs(value) / scale : 0;
    setNumber(text, value, 4);
    fill.className = value < 0 ? "minus" : "";
    fill.style.left = value < 0 ? `${-100 * share}%` : "0";
    fill.style.width = `${100 * share}%`;
  }

  function showArms(row) {
    const largest = (values) => Math.max(1e-12, ...values.map(Math.abs)); // less is rounding: no bar
    const [parts, effects] = [largest(row.contributions), largest(row.effects)];
    arms.forEach((arm, a) => {
      const p = row.policy.prob[a];
      arm.bar.firstChild.style.width = `${100 * p}%`;
      arm.bar.lastChild.style.left = `calc(${100 * row.after.prob[a]}% - 3px)`;
      arm.bar.setAttribute("aria-valuenow", p.toFixed(4));
      arm.bar.setAttribute("aria-valuetext", shown(p));
      arm.pi.dataset.value = String(p);
      if (document.activeElement !== arm.pi) arm.pi.value = shown(p, 4);
      showSigned(arm.contribution, 0 - row.contributions[a], parts);
      showSigned(arm.effect, row.effects[a], effects);
      setNumber(arm.advantage, row.advantage[a], 4);
      setNumber(arm.delta, row.delta[a], 4);
      setNumber(arm.after, row.after.prob[a], 4);
      setNumber(arm.logit, row.policy.logits[a], 4);
      setText(arm.drawn, String(row.drawn[a]));
    });
  }

  // The other numbers

  const STRONG = ["entropy", "change", "remainder"];

  function quantity(row, name) {
    if (name === "entropy") return row.policy.entropy;
    return name === "lemma1" ? 0 - row.covariance : row[name];
  }

  function buildNumbers() {
    $("numbers").tBodies[0].replaceChildren(...QUANTITIES.map((name) =>
      element("tr", STRONG.includes(name) ? { class: "strong" } : {},
        element("th", { scope: "row" }, word(name)), element("td", { "data-name": name }))));
  }

  function showNumbers(row) {
    setText($("numbers-caption"), word("numbers_caption", { at: row.t }));
    for (const cell of $("numbers").querySelectorAll("td")) setNumber(cell, quantity(row, cell.dataset.name));
  }

  function say() {
    const row = last();
    if (playing) return;
    const fill = { at: row.t, policy: row.policy.prob.map((p) => `${(100 * p).toPrecision(3)} %`).join(", ") };
    for (const name of QUANTITIES) fill[name] = shown(quantity(row, name));
    setText($("said"), word("said", fill));
  }

  function showSteps() {
    const names = ["expectedReturn", "entropy", "change", "lemma1", "remainder", "bound"];
    const table = $("steps").querySelector("table");
    const stride = Math.ceil(rows.length / 40);
    const chosen = rows.filter((row, i) => i % stride === 0 || i === rows.length - 1);
    const heads = [word("axis_step"), ...names.map((name) => word(name))];
    table.tHead.replaceChildren(element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head))));
    table.tBodies[0].replaceChildren(...chosen.map((row) => {
      const cells = names.map((name) => element("td", {}, shown(quantity(row, name))));
      return element("tr", {}, element("th", { scope: "row" }, String(row.t)), ...cells);
    }));
  }

  function showPath() {
    const kept = Drawing.thinned(rows);
    const entropies = kept.map((row) => row.policy.entropy);
    const returns = kept.map((row) => row.expectedReturn);
    const lines = [{ x: entropies, y: returns, colour: "now", width: 2 }];
    const law = state.fit === "on" ? Core.fitLaw(entropies, returns) : null;
    const found = law ? word("fit_text", { a: shown(law.a), b: shown(law.b) }) : word("fit_none");
    setText($("fit-text"), state.fit === "on" ? found : "");
    if (law) {
      const most = Math.log(state.logits.length);
      const x = Array.from({ length: 80 }, (_, i) => (most * i) / 79);
      lines.push({ x, y: x.map((h) => -law.a * Math.exp(h) + law.b), colour: "pg", width: 2, dash: [7, 4] });
    }
    const end = kept.length - 1;
    const marks = [{ x: entropies[0], y: returns[0], open: true }, { x: entropies[end], y: returns[end] }];
    Drawing.drawPlot($("path"), { lines, marks, names: ["H", "J"], least: 0.02 });
  }

  function showChanges() {
    const kept = Drawing.thinned(rows);
    const x = kept.map((row) => row.t);
    const [exact, lemma] = ["change", "lemma1"].map((name) => kept.map((row) => quantity(row, name)));
    const zero = { x: [x[0], x[x.length - 1]], y: [0, 0], colour: "line", width: 1 };
    const lines = [zero, { x, y: lemma, colour: "rise", width: 6 }, { x, y: exact, colour: "now", width: 1.6 }];
    const dots = [{ x: x[0], y: lemma[0], colour: "rise", radius: 9 }, { x: x[0], y: exact[0] }];
    const marks = kept.length === 1 ? dots : [];
    Drawing.drawPlot($("changes"), { lines, marks, names: [word("axis_step"), "ΔH"], steps: true });
  }

  function render() {
    const row = last();
    const catching = rows.length <= state.at;
    const three = state.logits.length === 3;
    if (three) {
      Drawing.drawSimplex($("simplex"), {
        rewards: state.rewards,
        region: state.region,
        arrows: state.arrows,
        rows,
        reference: state.method === "reference_kl" ? Core.softmax(run.reference).prob : null,
      });
    }
    $("simplex").hidden = $("simplex-tools").hidden = !three;
    $("simplex-only").hidden = three;
    setText($("simplex-only"), word("simplex_only", { arms: state.logits.length }));
    showNumbers(row);
    const brief = { entropy: shown(row.policy.entropy), change: shown(row.change), lemma1: shown(quantity(row, "lemma1")) };
    setText($("brief"), word("brief", brief));
    if (document.activeElement !== $("at")) $("at").value = String(state.at);
    $("step").disabled = state.at >= State.LIMITS.at[1];
    showArms(row);
    showPath();
    showChanges();
    if ($("steps").open) later("steps", 150, showSteps);
    if ($("code").open) $("python").value = State.python(state);
    document.body.dataset.ready = String(!catching);
    if (catching) setText($("numbers-caption"), word("catching_up", { at: row.t }));
  }

  // Events

  function bindSimplex(canvas) {
    const drag = (event) => {
      const box = canvas.getBoundingClientRect();
      setPolicy(Drawing.policyAt(canvas, event.clientX - box.left, event.clientY - box.top));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag(event);
    });
    canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && drag(event));
    canvas.addEventListener("keydown", (event) => {
      const [p1, p2, p3] = last().policy.prob;
      const step = event.shiftKey ? 0.05 : 0.01;
      const half = step / 2;
      const to = {
        ArrowUp: [p1 + step, p2 - half, p3 - half],
        ArrowDown: [p1 - step, p2 + half, p3 + half],
        ArrowRight: [p1, p2 - step, p3 + step],
        ArrowLeft: [p1, p2 + step, p3 - step],
        Home: [1 / 3, 1 / 3, 1 / 3],
      }[event.key];
      if (!to) return;
      event.preventDefault();
      setPolicy(Drawing.inner(to));
    });
  }

  function bindButtons() {
    const actions = {
      step: () => {
        setPlaying(false);
        goOn();
      },
      play: () => {
        setPlaying(!playing);
        schedule();
      },
      reset: () => restart(0),
      here: () => {
        state.logits = logProbs();
        restart(0);
      },
      uniform: () => setPolicy(state.logits.map(() => 1)),
      "set-reference": () => {
        state.reference = rounded(logProbs(), 4);
        restart();
        fillControls();
      },
      "clear-reference": () => choose("reference", null),
      "copy-link": () => {
        writeUrl();
        copy(location.href);
      },
      "copy-python": () => copy(State.python(state)),
    };
    for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
  }

  function bindControls() {
    for (const name of ["method", "mode"]) {
      $(name).addEventListener("change", (event) => choose(name, event.target.value));
    }
    for (const name of ["region", "arrows", "lang", "theme"]) {
      $(name).addEventListener("change", (event) => look(name, event.target.value));
    }
    $("fit").addEventListener("change", (event) => look("fit", event.target.checked ? "on" : "off"));
    $("count").addEventListener("change", (event) => setCount(Number(event.target.value)));
    $("example").addEventListener("change", (event) => {
      const fragment = EXAMPLES[event.target.value];
      if (fragment) load(fragment, { lang: state.lang, theme: state.theme });
    });
    bind($("at"), () => State.LIMITS.at, () => state.at, goTo);
    for (const name of FIELDS) {
      bind($(name), () => State.LIMITS[name], () => state[name], (value) => setField(name, value));
    }
    for (const name of OWN) {
      const limits = () => State.NUMBERS[state.method][name].limits;
      bind($(`n.${name}`), limits, () => state.numbers[name], (value) => setOwn(name, value));
    }
    for (const id of ["steps", "code"]) $(id).addEventListener("toggle", changed);
  }

  function start() {
    bindSimplex($("simplex"));
    bindButtons();
    bindControls();
    known = location.hash;
    load(known);
    window.addEventListener("hashchange", followUrl);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", schedule);
    const watcher = new ResizeObserver(schedule);
    for (const id of ["simplex", "path", "changes"]) watcher.observe($(id).parentElement);
    window.playgroundFrames = frames;
  }

  start();
})();

"use strict";
/*
The whole state of the page as plain data: to and from the fragment of the URL, and as a Python program.
Anything may stand in a URL: what cannot be read is left at its default and named in `ignored`.
*/
const State = (() => {
  const MOST_ARMS = 8;
  const LIMITS = {  // [lowest, highest, whole numbers only]
    logit: [-700, 700],
    reward: [-1e6, 1e6],
    stepSize: [0, 1e6],
    inner: [1, 16, true],
    groups: [1, 32, true],
    size: [2, 32, true],
    seed: [0, 4294967295, true],
    at: [0, 10000, true],
  };
  const FRACTION = { value: 0.2, limits: [1e-9, 0.5] };
  const NUMBERS = {  // of each method: the default and the limits of its own numbers
    pg: {},
    npg: {},
    grpo: { low: { value: 0.2, limits: [0, 1] }, high: { value: 0.2, limits: [0, 1e6] } },
    entropy_bonus: { coefficient: { value: 0.1, limits: [-1e3, 1e3] } },
    reference_kl: { coefficient: { value: 0.1, limits: [-1e3, 1e3] } },
    clip_cov: {
      fraction: FRACTION,
      low: { value: 0.1, limits: [-1e6, 1e6] },
      high: { value: 5, limits: [-1e6, 1e6] },
    },
    kl_cov: { fraction: FRACTION, coefficient: { value: 1, limits: [0, 1e3] } },
    steer: { smallest: { value: 0.7, limits: [1e-9, 1] } },
  };
  const CHOICES = {
    method: Object.keys(NUMBERS),
    mode: ["exact", "sampled"],
    region: ["none", "pg", "npg", "arm1", "arm2", "arm3"],
    arrows: ["both", "pg", "npg", "none"],
    fit: ["off", "on"],
    lang: ["auto", "en", "zh"],
    theme: ["auto", "light", "dark"],
  };
  const SHORT = { stepSize: "eta", logits: "z", rewards: "r", reference: "ref" };
  const LONG = Object.fromEntries(Object.entries(SHORT).map(([long, short]) => [short, long]));

  const defaults = () => ({
    logits: [-2.9957, -4.6052, -0.0619],
    rewards: [1, 0.9, 0.1],
    reference: null,
    stepSize: 0.4,
    inner: 1,
    groups: 4,
    size: 8,
    seed: 0,
    at: 0,
    method: "pg",
    mode: "exact",
    region: "pg",
    arrows: "both",
    fit: "off",
    lang: "auto",
    theme: "auto",
    numbers: numbersOf("pg"),
  });

  function numbersOf(method) {
    return Object.fromEntries(Object.entries(NUMBERS[method]).map(([name, { value }]) => [name, value]));
  }

  /** The number that a person or a URL wrote, within limits; null for anything else. */
  function readNumber(text, [low, high, whole]) {
    const plain = String(text).trim().replaceAll("−", "-");
    if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain)) return null;
    const value = Number(plain);
    if (!(value >= low && value <= high) || (whole && !Number.isInteger(value))) return null;
    return value + 0; // −0 becomes 0
  }

  function readList(text, limits) {
    const parts = text.split(",");
    if (parts.length < 2 || parts.length > MOST_ARMS) return null;
    const values = parts.map((part) => readNumber(part, limits));
    return values.includes(null) ? null : values;
  }

  function readField(name, text) {
    if (name in CHOICES) return CHOICES[name].includes(text) ? text : null;
    if (name === "rewards") return readList(text, LIMITS.reward);
    if (name === "logits" || name === "reference") return readList(text, LIMITS.logit);
    return Object.hasOwn(LIMITS, name) ? readNumber(text, LIMITS[name]) : null;
  }

  const decoded = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return "";
    }
  };

  /** {state, ignored}: the state of a fragment such as "#z=0,0,0&r=1,0,0&eta=0.1"; ignored names what was no use. */
  function parse(fragment) {
    const given = new Map();
    for (const pair of fragment.replace(/^#/, "").slice(0, 4000).split("&").filter(Boolean)) {
      const [name, ...rest] = pair.split("=");
      given.set(decoded(name), decoded(rest.join("=")));
    }
    const state = defaults();
    const ignored = [];
    const names = [...given.keys()].sort((a, b) => (b === "method") - (a === "method")); // it says which numbers exist
    for (const name of names) {
      if (!readInto(state, name, given.get(name))) ignored.push(name.slice(0, 20) || "?");
    }
    if (state.rewards.length !== state.logits.length && (given.has("r") || given.has("rewards"))) {
      state.rewards = defaults().rewards;
      ignored.push("r");
    }
    return { state: consistent(state, ignored), ignored };
  }

  function readInto(state, given, text) {
    const name = Object.hasOwn(LONG, given) ? LONG[given] : given;
    const own = name.startsWith("n.") ? name.slice(2) : null;
    const numbers = NUMBERS[state.method];
    if (!Object.hasOwn(own === null ? state : numbers, own ?? name)) return false;
    const value = own === null ? readField(name, text) : readNumber(text, numbers[own].limits);
    if (value === null) return false;
    if (own === null) state[name] = value;
    else state.numbers[own] = value;
    if (name === "method") state.numbers = numbersOf(value);
    return true;
  }

  /** The state with one reward and one reference logit an arm, and bounds in order. */
  function consistent(state, ignored = []) {
    const arms = state.logits.length;
    if (state.rewards.length !== arms) {
      state.rewards = state.logits.map((_, a) => state.rewards[a] ?? 0);
    }
    if (state.reference && state.reference.length !== arms) {
      state.reference = null;
      ignored.push("ref");
    }
    if (state.method === "clip_cov" && state.numbers.low > state.numbers.high) {
      Object.assign(state.numbers, numbersOf("clip_cov"));
      ignored.push("n.low");
    }
    return state;
  }

  /** The fragment of a state, with '#': what differs from the default, and always logits, rewards and step size. */
  function write(state) {
    const plain = defaults();
    const own = numbersOf(state.method);
    const parts = [];
    for (const name of Object.keys(plain)) {
      const always = ["logits", "rewards", "stepSize"].includes(name);
      if (name === "numbers" || state[name] === null || (!always && state[name] === plain[name])) continue;
      parts.push(`${SHORT[name] ?? name}=${[state[name]].flat().join(",")}`);
    }
    for (const [name, value] of Object.entries(state.numbers)) {
      if (value !== own[name]) parts.push(`n.${name}=${value}`);
    }
    return `#${parts.join("&")}`;
  }

  /** The settings of a run in the words of core.js. */
  const runOf = (state) => ({ ...state, reference: state.reference ?? state.logits });

  /** A number as Python writes a float. */
  const float = (x) => (/^-?\d+$/.test(String(x)) ? `${x}.0` : String(x));

  function pythonAlgorithm(state) {
    const numbers = Object.entries(state.numbers).map(([name, value]) => `, ${name}=${float(value)}`).join("");
    const stepSize = float(state.stepSize);
    if (state.method === "pg") return `sd.Algorithm(sd.VanillaPG(${stepSize}))`;
    if (state.method === "npg") return `sd.Algorithm(sd.NaturalPG(${stepSize}))`;
    const drawn = state.mode === "sampled" ? `, groups=${state.groups}, group_size=${state.size}` : "";
    return `sd.build("${state.method}", step_size=${stepSize}, mode="${state.mode}"${drawn}${numbers})`;
  }

  /** The program that gives the numbers of the page with the package, and leaves them in `trace`. */
  function python(state) {
    const list = (values) => `[${values.map(float).join(", ")}]`;
    const sampled = state.mode === "sampled" && !["pg", "npg"].includes(state.method);
    const reference = state.method === "reference_kl" && state.reference;
    const lines = [
      "import dataclasses",
      "",
      "import jax",
      "import softmaxdyn as sd",
      "",
      'jax.config.update("jax_enable_x64", True)',
      `bandit = sd.Bandit(${list(state.rewards)})`,
      `algorithm = ${pythonAlgorithm(state)}`,
      reference && "*clips, penalty = algorithm.interventions",
      reference && `penalty = dataclasses.replace(penalty, reference=${list(state.reference)})`,
      reference && "algorithm = dataclasses.replace(algorithm, interventions=(*clips, penalty))",
      "trace = sd.simulate(",
      `    bandit, algorithm, num_steps=${state.at + 1}, inner_steps=${state.inner},`,
      `    logits=${list(state.logits)},${sampled ? ` key=jax.random.key(${state.seed}),` : ""}`,
      ")",
      `print(f"step {trace.step[-1]}: expected_return = {trace.expected_return[-1]:.12g}")`,
      'for name in ("entropy", "entropy_change", "lemma_1", "theorem_1", "theorem_2", "remainder", "bound", "kl"):',
      '    print(f"{name} = {getattr(trace, name)[-1, 0]:.12g}")',
    ];
    const wanted = reference ? lines : lines.slice(2);
    return `${wanted.filter((line) => typeof line === "string").join("\n")}\n`;
  }

  return { LIMITS, NUMBERS, CHOICES, MOST_ARMS, numbersOf, readNumber, parse, write, runOf, python };
})();

if (typeof module !== "undefined") module.exports = State;

"use strict";
/*
The numbers of the playground: the formulas of the Python package, for one state, in float64.
The same names mean the same things there (policy.py, change.py, theory.py, tokens.py, interventions/, updates/), and
tests/test_playground.py compares the two. A policy is what `softmax` returns; a step δ, an advantage, a reward are
arrays with one number an action.
*/
const Core = (() => {
  const EPS = Number.EPSILON;
  const TINY = 2.2250738585072014e-308;
  const LARGEST_STEP = Number.MAX_VALUE * 1e-8;
  const FACTORIALS = [1];
  for (let n = 1; n <= 16; n++) FACTORIALS.push(n * FACTORIALS[n - 1]);

  const sum = (values) => values.reduce((total, x) => total + x, 0);
  const sumOf = (values, f) => values.reduce((total, x, a) => total + f(x, a), 0);
  const largestOf = (values) => values.reduce((top, x) => Math.max(top, x), -Infinity);
  const clip = (x, low, high) => Math.min(Math.max(x, low), high);
  const range = (n) => Array.from({ length: n }, (_, i) => i);

  // policy.py

  const lostDigits = (value, top, x) => {
    const kept = value - x;
    return kept - top + (value - (x + kept));
  };

  /** π = softmax(z) relative to the mode, so that nothing cancels; `low` holds digits of z beyond its last. */
  function softmax(logits, low = null) {
    const mode = logits.indexOf(largestOf(logits));
    const x = logits.map((z) => z - logits[mode]);
    const e = x.map((value, a) => {
      const power = Math.exp(value);
      const lost = lostDigits(logits[a], logits[mode], value) + (low ? low[a] - low[mode] : 0);
      return power > 0 ? power + power * clip(lost, -0.1, 0.1) : 0;
    });
    const others = sumOf(e, (value, a) => (a === mode ? 0 : value));
    const prob = e.map((value) => value / (1 + others));
    const meanX = sumOf(prob, (p, a) => p * x[a]);
    const norm = Math.log1p(others);
    return {
      logits,
      mode,
      prob,
      logProb: x.map((value) => value - norm),
      centredLogProb: x.map((value) => value - meanX),
      entropy: norm - meanX,
    };
  }

  /** values − E_π values, without loss near a deterministic policy. */
  function centred(policy, values) {
    const x = values.map((value) => value - values[policy.mode]);
    const mean = sumOf(x, (value, a) => policy.prob[a] * value);
    return x.map((value) => value - mean);
  }

  const flooredProb = (policy) => policy.prob.map((p) => Math.max(p, TINY ** 0.8));

  /** ψ(x) = eˣ − 1 − x to full relative accuracy. */
  function expMinusLinear(x) {
    if (Math.abs(x) >= 0.5) return Math.expm1(x) - x;
    let series = 0;
    for (let n = 16; n > 1; n--) series = series * x + 1 / FACTORIALS[n];
    return x * x * series;
  }

  // change.py

  /** {change, covariance, remainder, kl} of the step δ: ΔH = −covariance + remainder, exact, without cancellation. */
  function decompose(policy, delta) {
    const d = centred(policy, delta);
    return largestOf(d.map(Math.abs)) <= 0.5 ? smallStep(policy, d) : largeStep(policy, delta, d);
  }

  function smallStep({ prob: p, centredLogProb: u }, d) {
    const psi = d.map(expMinusLinear);
    const growth = sumOf(p, (pa, a) => pa * psi[a]);
    const shrink = 1 / (1 + growth);
    const spread = sumOf(p, (pa, a) => pa * (d[a] * (d[a] + psi[a]) - psi[a]));
    const kl = shrink * spread + (shrink * growth - Math.log1p(growth));
    const covariance = sumOf(p, (pa, a) => pa * d[a] * u[a]);
    const curved = sumOf(p, (pa, a) => pa * psi[a] * u[a]);
    const remainder = growth * shrink * covariance - shrink * curved - kl;
    return { change: remainder - covariance, covariance, remainder, kl };
  }

  function largeStep(policy, delta, d) {
    const { prob: p, centredLogProb: u } = policy;
    const after = stepped(policy, delta);
    const x = logGrowth(policy, after, d);
    const c = logMeanExp(policy, d);
    const psi = x.map(expMinusLinear);
    const kl = sumOf(p, (pa, a) =>
      pa * (x[a] < -1 ? Math.exp(x[a]) * (x[a] - 1) + 1 : x[a] * (x[a] + psi[a]) - psi[a]));
    const linear = p.map((pa, a) => pa * d[a] * u[a]);
    const curved = p.map((pa, a) => pa * (Math.abs(d[a]) < c ? Math.expm1(x[a]) - d[a] : psi[a] - c) * u[a]);
    const moved = p.map((pa, a) => pa * Math.expm1(x[a]) * u[a]);
    return shorterRoad(policy, after, { kl, linear, curved, moved });
  }

  /** The same numbers by the sums whose terms are the smaller: those of T1 and T2, or H' − H. */
  function shorterRoad(policy, after, { kl, linear, curved, moved }) {
    const absolute = (terms) => sumOf(terms, Math.abs);
    const revived = sumOf(after.prob, (q, a) => (policy.prob[a] > 0 ? 0 : q)) > EPS;
    const entropies = after.entropy + policy.entropy;
    const subtract = revived || entropies < absolute(moved) + kl;
    const change = subtract ? after.entropy - policy.entropy : -sum(moved) - kl;
    const covariance = sum(linear);
    const size = (subtract ? entropies : absolute(moved) + kl) + absolute(linear);
    const add = revived || size < absolute(curved) + kl;
    const remainder = add ? change + covariance : -sum(curved) - kl;
    return { change, covariance, remainder, kl: revived ? divergence(after, policy) : kl };
  }

  function logGrowth(policy, after, d) {
    const c = logMeanExp(policy, d);
    return policy.prob.map((p, a) => {
      if (p === 0) return 0;
      return c > 30 ? after.logProb[a] - policy.logProb[a] : d[a] - c;
    });
  }

  function logMeanExp({ prob: p, logProb }, d) {
    const taken = range(p.length).filter((a) => p[a] > 0);
    const safe = 0.4 * Math.log(Number.MAX_VALUE);
    if (largestOf(taken.map((a) => d[a])) <= safe) {
      return Math.log1p(sumOf(taken, (a) => p[a] * expMinusLinear(Math.min(d[a], safe))));
    }
    const largest = largestOf(taken.map((a) => logProb[a] + d[a]));
    return largest + Math.log(sumOf(taken, (a) => Math.exp(logProb[a] + d[a] - largest)));
  }

  /** KL(policy‖other). */
  function divergence(policy, other) {
    return sumOf(policy.prob, (p, a) => (p > 0 ? p * (policy.logProb[a] - other.logProb[a]) : 0));
  }

  /** softmax(z + δ), added relative to the mode, so that a common shift costs no digits. */
  function stepped(policy, delta) {
    const { logits: z, mode } = policy;
    const parts = z.map((_, a) => {
      const x = z[a] - z[mode];
      const y = delta[a] - delta[mode];
      const total = x + y;
      const kept = total - x;
      const low = x - (total - kept) + (y - kept);
      return { total, low: low + lostDigits(z[a], z[mode], x) + lostDigits(delta[a], delta[mode], y) };
    });
    return softmax(parts.map((part) => part.total), parts.map((part) => part.low));
  }

  // theory.py

  /** Cov_π(log π, values). */
  function covariance(policy, values) {
    return sum(contributions(policy, values));
  }

  /** π_a (log π_a + H)(v_a − E v): what each action adds to the covariance. */
  function contributions(policy, values) {
    return centred(policy, values).map((v, a) => policy.prob[a] * policy.centredLogProb[a] * v);
  }

  const proposition1 = (policy, advantage, stepSize) =>
    centred(policy, advantage).map((value, a) => stepSize * policy.prob[a] * value);
  const lemma1 = (policy, delta) => -covariance(policy, delta);
  const theorem1 = (policy, advantage, stepSize) =>
    -stepSize * covariance(policy, advantage.map((value, a) => policy.prob[a] * value));
  const theorem2 = (policy, advantage, stepSize) => -stepSize * covariance(policy, advantage);

  /** −(S_a − S̄): the first-order ΔH when action a is drawn and rewarded with weight 1. */
  function sampleEffect({ prob, centredLogProb }) {
    const s = prob.map((p, a) => p * centredLogProb[a]);
    const mean = sumOf(s, (value, a) => prob[a] * value);
    return s.map((value) => mean - value);
  }

  /** (1/8 + log(K−1)/(12√3)) osc(δ)² ≥ |remainder|. */
  function remainderBound(delta) {
    const constant = 0.125 + Math.log(Math.max(delta.length - 1, 1)) / (12 * Math.sqrt(3));
    return constant * (largestOf(delta) + largestOf(delta.map((x) => -x))) ** 2;
  }

  /** η*: for 0 < η < η* the sign of ΔH of the step ηv is that of Lemma 1. */
  function certifiedStepSize(policy, direction) {
    const bound = remainderBound(direction);
    return bound > 0 ? Math.abs(covariance(policy, direction)) / bound : Infinity;
  }

  // Random numbers of JAX: threefry2x32. Both split(key, n)[i] and fold_in(key, i) are derive(key, i).

  function threefry(key, count) {
    const ks = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda];
    const turns = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let x = (count[0] + ks[0]) | 0;
    let y = (count[1] + ks[1]) | 0;
    for (let round = 0; round < 5; round++) {
      for (const turn of turns[round % 2]) {
        x = (x + y) | 0;
        y = ((y << turn) | (y >>> (32 - turn))) ^ x;
      }
      x = (x + ks[(round + 1) % 3]) | 0;
      y = (y + ks[(round + 2) % 3] + round + 1) | 0;
    }
    return [x >>> 0, y >>> 0];
  }

  const seedKey = (seed) => [0, seed >>> 0];
  const derive = (key, i) => threefry(key, [0, i]);

  function uniform(key, i = 0) {
    const [high, low] = threefry(key, [0, i]);
    return (high * 2 ** 20 + (low >>> 12)) * 2 ** -52;
  }

  function drawActions(key, policy, count) {
    let total = 0;
    const cumulative = policy.prob.map((p) => (total += p));
    const last = cumulative.filter((c) => c < total).length;
    const play = derive(derive(key, 1), 0);
    return range(count).map((i) => {
      const u = uniform(derive(derive(play, i), 1)) * total;
      return Math.min(cumulative.filter((c) => c <= u).length, last);
    });
  }

  // advantages/ and tokens.py: a token is {action, weight, advantage, logProb, oldLogProb, entropy}

  /** (R − mean)/(std + 1e-6) of one group; n = ∞ (all actions, weighted with π) or the number drawn. */
  function groupAdvantages(rewards, weights, n) {
    const total = sum(weights);
    const top = largestOf(rewards.filter((_, i) => weights[i] > 0));
    const mean = top + sumOf(rewards, (r, i) => weights[i] * (r - top)) / total;
    const variance = sumOf(rewards, (r, i) => weights[i] * (r - mean) ** 2) / total;
    const spread = Math.sqrt(variance / (1 - 1 / n)) + 1e-6;
    return rewards.map((r) => (r - mean) / spread);
  }

  const tokensOf = (actions, weights, advantages, policy) => actions.map((action, i) => ({
    action,
    weight: weights[i],
    advantage: advantages[i],
    logProb: policy.logProb[action],
    oldLogProb: policy.logProb[action],
    entropy: policy.entropy,
  }));

  /** All actions with weight π and the exact advantage r − J. */
  function exactTokens(policy, rewards) {
    return tokensOf(range(rewards.length), flooredProb(policy), centred(policy, rewards), policy);
  }

  /** All actions with weight π, as one infinite group. */
  function populationTokens(policy, rewards) {
    const weights = flooredProb(policy);
    return tokensOf(range(rewards.length), weights, groupAdvantages(rewards, weights, Infinity), policy);
  }

  /** The drawn actions, `size` a group, each with weight 1/number. */
  function sampledTokens(policy, rewards, actions, size) {
    const weights = actions.map(() => 1 / actions.length);
    const advantages = range(actions.length / size).flatMap((g) => {
      const group = actions.slice(g * size, (g + 1) * size).map((a) => rewards[a]);
      return groupAdvantages(group, weights.slice(0, size), size);
    });
    return tokensOf(actions, weights, advantages, policy);
  }

  const under = (tokens, policy) => tokens.map((token) => ({
    ...token,
    logProb: policy.logProb[token.action],
    entropy: policy.entropy,
  }));

  const ratio = ({ logProb, oldLogProb }) => {
    const limit = 0.5 * Math.log(Number.MAX_VALUE);
    return Math.exp(clip(logProb - oldLogProb, -limit, limit));
  };

  const totalWeight = (tokens) => sumOf(tokens, (token) => token.weight);
  const weightedMean = (tokens, values) => sumOf(tokens, (t, i) => t.weight * values[i]) / totalWeight(tokens);

  function covarianceScores(tokens, population) {
    const counted = population ? tokens : tokens.map((t) => ({ ...t, weight: 1 }));
    const [surprise, advantage] = [(t) => t.logProb, (t) => t.advantage].map((part) => {
      const values = tokens.map(part);
      const mean = weightedMean(counted, values);
      return values.map((value) => value - mean);
    });
    return surprise.map((value, i) => value * advantage[i]);
  }

  /** 1 for the `count` largest values among the candidates, the first of equals first. */
  function largest(values, candidates, count) {
    const order = range(values.length).filter((i) => candidates[i]).sort((i, j) => values[j] - values[i] || i - j);
    const chosen = new Set(order.slice(0, count));
    return values.map((_, i) => (chosen.has(i) ? 1 : 0));
  }

  const countOf = (fraction, tokens) => Math.max(Math.floor(fraction * tokens.length), 1);

  /** How much of each token belongs to the largest `fraction` of the tokens by `values`. */
  function topShare(values, tokens, fraction, population) {
    if (!population) return largest(values, values.map(() => true), countOf(fraction, tokens));
    const wanted = fraction * totalWeight(tokens);
    const shares = values.map(() => 0);
    let before = 0;
    for (const i of range(values.length).sort((i, j) => values[j] - values[i] || i - j)) {
      shares[i] = clip((wanted - before) / tokens[i].weight, 0, 1);
      before += tokens[i].weight;
    }
    return evenAmongEquals(shares, values, tokens);
  }

  const evenAmongEquals = (shares, values, tokens) => values.map((value) => {
    const equals = range(values.length).filter((i) => values[i] === value);
    return sumOf(equals, (i) => tokens[i].weight * shares[i]) / sumOf(equals, (i) => tokens[i].weight);
  });

  /** A random choice of ⌊fraction · n⌋ (at least 1) of n tokens among the candidates; its expectation without a key. */
  function randomShare(key, candidates, tokens, fraction) {
    if (key) return largest(tokens.map((_, i) => uniform(key, i)), candidates, countOf(fraction, tokens));
    const mass = sumOf(tokens, (t, i) => (candidates[i] ? t.weight : 0));
    const share = Math.min(1, (fraction * totalWeight(tokens)) / (mass > 0 ? mass : 1));
    return candidates.map((candidate) => (candidate ? share : 0));
  }

  const mix = (share, chosen, other) => (share >= 1 ? chosen : other + share * (chosen - other));

  // interventions/: each maps (key, tokens, policy, push) to a push {score, field, selected}

  const outside = (token, low, high) =>
    (token.advantage > 0 && ratio(token) > 1 + high) || (token.advantage < 0 && ratio(token) < 1 - low);

  const ppoClip = ({ low = 0.2, high = 0.2 } = {}) => (key, tokens, policy, push) => {
    const cut = tokens.map((token) => outside(token, low, high));
    return { ...push, score: push.score.map((w, i) => (cut[i] ? 0 : w)), selected: cut.map(Number) };
  };

  const addField = (tokens, push, coefficient, row) => {
    const mass = totalWeight(tokens);
    return { ...push, field: push.field.map((x, a) => x + coefficient * (mass * row[a])) };
  };

  const entropyBonus = ({ coefficient }) => (key, tokens, policy, push) =>
    addField(tokens, push, coefficient, policy.prob.map((p, a) => -p * policy.centredLogProb[a]));

  const referenceKL = ({ coefficient }, reference) => (key, tokens, policy, push) => {
    const slope = centred(policy, policy.logits.map((z, a) => z - reference[a]));
    return addField(tokens, push, coefficient, slope.map((value, a) => -policy.prob[a] * value));
  };

  const clipCov = ({ fraction, low, high }) => (key, tokens, policy, push) => {
    const scores = covarianceScores(tokens, !key);
    const [p, a] = [(t) => Math.abs(t.logProb), (t) => Math.abs(t.advantage)].map((f) => largestOf(tokens.map(f)));
    const slack = 8 * EPS * p * a;
    const candidates = scores.map((score) => score >= low - slack && score <= high + slack);
    const selected = randomShare(key, candidates, tokens, fraction);
    return { ...push, selected, score: push.score.map((w, i) => mix(selected[i], 0, w)) };
  };

  const klCov = ({ fraction, coefficient }) => (key, tokens, policy, push) => {
    const selected = topShare(covarianceScores(tokens, !key), tokens, fraction, !key);
    const score = push.score.map((w, i) => {
      const pull = coefficient * Math.sign(tokens[i].logProb - tokens[i].oldLogProb);
      return mix(selected[i], w - pull, w);
    });
    return { ...push, selected, score };
  };

  const entropyScore = ({ logProb, entropy }) => {
    const u = logProb + entropy;
    return Math.abs(u) > 4 * EPS * (Math.abs(logProb) + Math.abs(entropy)) ? Math.exp(logProb) * u : 0;
  };

  const steer = ({ smallest }) => (key, tokens, policy, push) => {
    const sizes = tokens.map((token) => {
      const loss = outside(token, 0.2, 0.2) ? 0 : ratio(token) * token.advantage;
      return Math.abs(loss * entropyScore(token) * -Math.expm1(token.logProb));
    });
    const most = largestOf(sizes);
    const score = push.score.map((w, i) => w * Math.exp(Math.log(smallest) * (most > 0 ? sizes[i] / most : 0)));
    return { ...push, score, selected: score.map((w, i) => Number(w !== push.score[i])) };
  };

  // updates/

  const vanilla = (gradient, policy, stepSize) => gradient.map((g) => stepSize * g);

  function natural(gradient, policy, stepSize) {
    const mass = flooredProb(policy);
    return centred(policy, gradient.map((g, a) => g / mass[a])).map((value) => stepSize * value);
  }

  function bounded(move) {
    const kept = move.map((x) => clip(x, -LARGEST_STEP, LARGEST_STEP));
    const top = largestOf(kept);
    return top > 1e3 ? kept.map((x) => x - top) : kept;
  }

  // methods.py

  const METHODS = {
    pg: { group: false, update: vanilla, parts: () => [] },
    npg: { group: false, update: natural, parts: () => [] },
    grpo: { group: true, update: vanilla, parts: (n) => [ppoClip(n)] },
    entropy_bonus: { group: true, update: vanilla, parts: (n) => [ppoClip(), entropyBonus(n)] },
    reference_kl: { group: true, update: vanilla, parts: (n, reference) => [ppoClip(), referenceKL(n, reference)] },
    clip_cov: { group: true, update: vanilla, parts: (n) => [clipCov(n)] },
    kl_cov: { group: true, update: vanilla, parts: (n) => [klCov(n)] },
    steer: { group: true, update: vanilla, parts: (n) => [ppoClip(), steer(n)] },
  };

  /** Σ weight · score · (e_a − π) + field, after all interventions; and the push behind it. */
  function gradient(parts, key, tokens, policy) {
    const none = policy.prob.map(() => 0);
    let push = { score: tokens.map((t) => ratio(t) * t.advantage), field: none, selected: tokens.map(() => 0) };
    parts.forEach((part, number) => {
      push = part(key && derive(key, number), tokens, policy, { ...push, selected: tokens.map(() => 0) });
    });
    const table = [...none];
    tokens.forEach((token, i) => (table[token.action] += token.weight * push.score[i]));
    const total = sum(table);
    return { push, gradient: table.map((x, a) => x - policy.prob[a] * total + push.field[a]) };
  }

  /** The tokens of outer step t of a run. */
  function tokensAt(run, t, policy) {
    const { method, mode, rewards, groups, size, seed } = run;
    if (!METHODS[method].group) return exactTokens(policy, rewards);
    if (mode === "exact") return populationTokens(policy, rewards);
    const key = derive(derive(seedKey(seed), t), 0);
    return sampledTokens(policy, rewards, drawActions(key, policy, groups * size), size);
  }

  /** One outer step from `logits`: {delta, tokens, selected}; `run` holds the settings, `reference` among them. */
  function step(run, t, logits) {
    const policy = softmax(logits);
    const tokens = tokensAt(run, t, policy);
    const { update, parts, group } = METHODS[run.method];
    const drawn = group && run.mode === "sampled";
    const chain = parts(run.numbers, run.reference);
    let delta = logits.map(() => 0);
    let selected = 0;
    for (let inner = 0; inner < run.inner; inner++) {
      const now = inner === 0 ? policy : softmax(logits.map((z, a) => z + delta[a]));
      const current = under(tokens, now);
      const key = drawn ? derive(derive(seedKey(run.seed), t), inner + 1) : null;
      const pushed = gradient(chain, key, current, now);
      const move = bounded(update(pushed.gradient, now, run.stepSize));
      delta = delta.map((x, a) => x + move[a]);
      selected += weightedMean(current, pushed.push.selected) / run.inner;
    }
    return { policy, delta, tokens, selected };
  }

  /** All that the page and a trace say of step t from `logits`; `drawn` counts the tokens of each action. */
  function observe(run, t, logits) {
    const { policy, delta, tokens, selected } = step(run, t, logits);
    const advantage = centred(policy, run.rewards);
    const whole = run.stepSize * run.inner;
    const top = run.rewards[policy.mode];
    return {
      t, policy, delta, selected, advantage,
      drawn: policy.prob.map((_, a) => tokens.filter((token) => token.action === a).length),
      expectedReturn: top + sumOf(policy.prob, (p, a) => p * (run.rewards[a] - top)),
      ...decompose(policy, delta),
      theorem1: theorem1(policy, advantage, whole),
      theorem2: theorem2(policy, advantage, whole),
      bound: remainderBound(delta),
      certified: certifiedStepSize(policy, delta),
      contributions: contributions(policy, delta),
      effects: sampleEffect(policy),
      after: stepped(policy, delta),
    };
  }

  const next = (row) => row.policy.logits.map((z, a) => z + row.delta[a]);

  /** The rows of the first `count` steps of a run from its start. */
  function simulate(run, count) {
    const rows = [];
    for (let t = 0; t < count; t++) rows.push(observe(run, t, t === 0 ? run.logits : next(rows[t - 1])));
    return rows;
  }

  /** {a, b} of J ≈ −a e^H + b by least squares; null with fewer than 3 points or one entropy. */
  function fitLaw(entropies, returns) {
    const x = entropies.map(Math.exp);
    const [mx, my] = [x, returns].map((values) => sum(values) / values.length);
    const sxx = sumOf(x, (value) => (value - mx) ** 2);
    if (x.length < 3 || !(sxx > 1e-18 * mx * mx)) return null;
    const slope = sumOf(x, (value, i) => (value - mx) * (returns[i] - my)) / sxx;
    return { a: -slope, b: my - slope * mx };
  }

  return {
    METHODS, softmax, centred, decompose, stepped, divergence, covariance, contributions, proposition1, lemma1,
    theorem1, theorem2, sampleEffect, remainderBound, certifiedStepSize, threefry, uniform, drawActions, exactTokens,
    populationTokens, sampledTokens, under, gradient, vanilla, natural, step, observe, next, simulate, fitLaw,
  };
})();

if (typeof module !== "undefined") module.exports = Core;

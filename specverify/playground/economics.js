"use strict";
/* specverify/laws/economics.py in the browser. tests/playground compares the two over a grid: change both. */
const economics = {
  MAX_SEARCHED: 64,

  expectedTokens(acceptance, k) {
    let sum = 0;
    for (let j = 0; j <= k; j++) sum += acceptance ** j;
    return sum;
  },

  /* Probability of 1, 2, ... k + 1 tokens in one round, with mean and variance. */
  roundLaw(acceptance, k) {
    const probabilities = [];
    for (let j = 0; j <= k; j++) probabilities.push(acceptance ** j - (j < k ? acceptance ** (j + 1) : 0));
    const mean = probabilities.reduce((sum, p, j) => sum + p * (j + 1), 0);
    const variance = probabilities.reduce((sum, p, j) => sum + p * (j + 1 - mean) ** 2, 0);
    return { probabilities, mean, variance };
  },

  roundCost: (k, draftCost) => 1 + k * draftCost,

  speedup(acceptance, k, draftCost) {
    return economics.expectedTokens(acceptance, k) / economics.roundCost(k, draftCost);
  },

  /* k 0 means that plain decoding is fastest. */
  optimum(acceptance, draftCost) {
    let best = { k: 0, speedup: 1 };
    for (let k = 1; k <= economics.MAX_SEARCHED; k++) {
      const gained = economics.speedup(acceptance, k, draftCost);
      if (gained > best.speedup) best = { k, speedup: gained };
    }
    return best;
  },

  /* The acceptance at which k draft tokens neither gain nor cost; null where they always cost. */
  breakEven(k, draftCost) {
    const wanted = economics.roundCost(k, draftCost);
    if (wanted > k + 1) return null;
    let low = 0, high = 1;
    for (let i = 0; i < 60; i++) {
      const middle = 0.5 * (low + high);
      if (economics.expectedTokens(middle, k) < wanted) low = middle; else high = middle;
    }
    return high;
  },

  /* Mean and standard deviation of the rounds that numTokens take. */
  requestRounds(acceptance, k, numTokens) {
    const { probabilities } = economics.roundLaw(acceptance, k);
    let waiting = new Float64Array(numTokens);
    waiting[0] = 1;
    let mean = 0, second = 0;
    for (let round = 0; round < numTokens; round++) {
      const running = waiting.reduce((sum, p) => sum + p, 0);
      if (running < 1e-15) break;
      mean += running;
      second += running * (2 * round + 1);
      const next = new Float64Array(numTokens);
      waiting.forEach((p, done) => probabilities.forEach((q, j) => {
        if (p > 0 && done + j + 1 < numTokens) next[done + j + 1] += p * q;
      }));
      waiting = next;
    }
    return { mean, spread: Math.sqrt(Math.max(second - mean ** 2, 0)) };
  },

  /* Accepted over judged draft tokens; null where none was judged. */
  measuredAcceptance(accepted, proposed) {
    let sum = 0, tests = 0;
    accepted.forEach((a, i) => { sum += a; tests += a + (a < proposed[i] ? 1 : 0); });
    if (tests === 0) return null;
    const value = sum / tests;
    return { value, standardError: Math.sqrt(value * (1 - value) / tests), tests };
  },

  /* Seeded uniforms in [0, 1): the mulberry32 generator, so that a page shows the same rounds everywhere. */
  uniforms(seed, count) {
    let state = seed >>> 0;
    return Float64Array.from({ length: count }, () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    });
  },

  /* Leading coins of each round that fall below the acceptance: what would be accepted of `width` draft tokens. */
  leadingAccepted(coins, width, acceptance) {
    return Array.from({ length: coins.length / width }, (_, round) => {
      let n = 0;
      while (n < width && coins[round * width + n] < acceptance) n++;
      return n;
    });
  },
};

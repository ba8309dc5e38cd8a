"use strict";
/* Ties the controls, the figures and the stepper together. */
const page = {
  MAX_K: 16, SEED: 1, REQUEST_TOKENS: 200,
  data: JSON.parse(document.getElementById("page-data").textContent),
  seed: 1, coins: null, file: null,

  by: (id) => document.getElementById(id),
  settings: () => ({
    acceptance: page.by("alpha").valueAsNumber, k: page.by("k").valueAsNumber,
    draftCost: page.by("cost").valueAsNumber, numRounds: Number(page.by("num-rounds").value),
  }),

  start() {
    traceReader.versions = page.data.versions;
    stepper.start();
    for (const radio of document.querySelectorAll("[name=source]")) radio.addEventListener("change", page.usePreset);
    page.by("restore").addEventListener("click", page.usePreset);
    for (const id of ["alpha", "k", "cost"]) page.by(id).addEventListener("input", page.draw);
    page.by("num-rounds").addEventListener("change", page.roll);
    page.by("again").addEventListener("click", () => { page.seed++; page.roll(); });
    for (const radio of document.querySelectorAll("[name=origin]")) radio.addEventListener("change", page.drawRounds);
    page.by("file").addEventListener("change", (event) => { page.open(event.target.files[0]); event.target.value = ""; });
    page.by("request").addEventListener("change", () => { stepper.place = 0; page.drawTrace(); });
    page.by("use-trace").addEventListener("click", page.useTrace);
    for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, page.onDrag);
    let width = 0;
    new ResizeObserver(() => {
      if (document.body.clientWidth !== width) { width = document.body.clientWidth; page.draw(); }
    }).observe(document.body);
    page.coins = economics.uniforms(page.seed, page.settings().numRounds * page.MAX_K);
    page.usePreset();
    if (page.data.trace) page.showFile(page.data.trace);
  },

  usePreset() {
    const name = document.querySelector("[name=source]:checked").value;
    const source = page.data.sources.find((one) => one.name === name);
    page.by("alpha").value = source.acceptance;
    page.by("cost").value = source.draft_cost;
    page.by("source-note").textContent = `${source.note} Typical: α ${source.acceptance}, cost ${source.draft_cost}.`;
    page.draw();
  },

  roll() {
    page.coins = economics.uniforms(page.seed, page.settings().numRounds * page.MAX_K);
    page.draw();
  },

  draw() {
    const { acceptance, k, draftCost, numRounds } = page.settings();
    page.by("alpha-out").textContent = acceptance.toFixed(2);
    page.by("k-out").textContent = k;
    page.by("cost-out").textContent = draftCost.toFixed(2);
    const leading = economics.leadingAccepted(page.coins, page.MAX_K, acceptance);
    const simulatedMean = (upTo) => leading.reduce((sum, n) => sum + 1 + Math.min(n, upTo), 0) / numRounds;
    const points = Array.from({ length: page.MAX_K }, (_, i) => {
      const law = economics.roundLaw(acceptance, i + 1), cost = economics.roundCost(i + 1, draftCost);
      return { k: i + 1, theory: law.mean / cost, spread: (2 * Math.sqrt(law.variance / numRounds)) / cost, simulated: simulatedMean(i + 1) / cost };
    });
    const law = economics.roundLaw(acceptance, k), best = economics.optimum(acceptance, draftCost);
    const tokens = leading.map((n) => 1 + Math.min(n, k));
    page.drawFigures({ acceptance, k, draftCost, numRounds, law, best, mean: simulatedMean(k) });
    charts.speedup(page.by("speedup-chart"), { points, best: best.k, current: k });
    const seen = law.probabilities.map((_, i) => tokens.filter((n) => n === i + 1).length / numRounds);
    charts.tokens(page.by("tokens-chart"), { theory: law.probabilities, simulated: seen });
    let sum = 0;
    const means = tokens.map((n, i) => (sum += n) / (i + 1));
    charts.running(page.by("running-chart"), { means, expected: law.mean, deviation: Math.sqrt(law.variance) });
    // Also after a resize: the strip of rounds is as long as there is room.
    page.drawRounds();
  },

  drawFigures({ acceptance, k, draftCost, numRounds, law, best, mean }) {
    const set = (id, text) => { page.by(id).textContent = text; };
    const cost = economics.roundCost(k, draftCost), error = Math.sqrt(law.variance / numRounds), gained = law.mean / cost;
    set("theory-tokens", law.mean.toFixed(2));
    set("simulated-tokens", `${mean.toFixed(2)} ± ${error.toFixed(2)}`);
    set("theory-speedup", `${gained.toFixed(2)}x`);
    set("simulated-speedup", `${(mean / cost).toFixed(2)}x ± ${(error / cost).toFixed(2)}`);
    const isFree = draftCost === 0 && acceptance > 0;
    set("best-k", isFree ? "no limit" : best.k === 0 ? "none" : best.k);
    set("best-speedup", isFree ? "drafting is free: longer never loses" : best.k === 0 ? "do not speculate" : `${best.speedup.toFixed(2)}x`);
    const even = economics.breakEven(k, draftCost);
    set("break-even", even === null ? "none" : even.toFixed(2));
    set("break-even-note", even === null ? "k drafts cost more than they can bring" : "below it, slower than plain decoding");
    const advice = isFree ? "" : best.k === 0 ? " No k pays here: do not speculate." : best.k === k ? " No other k does better." : ` k ${best.k} would give ${best.speedup.toFixed(2)}x.`;
    const drafts = k === 1 ? "one draft token" : `${k} draft tokens`;
    page.by("verdict").classList.toggle("slower", gained < 1);
    set("verdict", gained < 1
      ? `${gained.toFixed(2)}x: slower than plain decoding. A round pays for ${drafts} and gets ${(law.mean - 1).toFixed(2)} of them accepted.${advice}`
      : `${gained.toFixed(2)}x the speed of plain decoding: ${law.mean.toFixed(2)} tokens a round, which costs ${cost.toFixed(2)} passes.${advice}`);
    const { mean: needed, spread } = economics.requestRounds(acceptance, k, page.REQUEST_TOKENS);
    set("request-note", `an answer of ${page.REQUEST_TOKENS} tokens takes ${(needed * cost).toFixed(0)} ± ${(spread * cost).toFixed(0)} passes' time, plain decoding always ${page.REQUEST_TOKENS}.`);
  },

  drawRounds() {
    const origin = document.querySelector("[name=origin]:checked").value;
    page.by("trace-box").hidden = origin !== "trace";
    if (origin === "trace") return page.drawTrace();
    const { acceptance, k } = page.settings();
    const viewOf = (round) => {
      const coins = page.coins.subarray(round * page.MAX_K, round * page.MAX_K + k);
      const step = rounds.simulated(coins, k, acceptance);
      const compare = (i) => (coins[i] < acceptance ? "<" : "≥");
      return rounds.view(step, (i) => (i === null ? "target's" : `draft ${i + 1}`), (i) => `rolled ${coins[i].toFixed(2)} ${compare(i)} ${acceptance.toFixed(2)}`);
    };
    const committed = economics.leadingAccepted(page.coins, page.MAX_K, acceptance).map((n) => 1 + Math.min(n, k));
    stepper.show(committed, viewOf, "simulated");
  },

  onDrag(event) {
    event.preventDefault();
    page.by("drop").classList.toggle("over", event.type === "dragover");
    if (event.type === "drop" && event.dataTransfer.files.length) page.open(event.dataTransfer.files[0]);
  },

  async open(blob) {
    if (!blob) return;
    try {
      page.showFile(await traceReader.read(new Uint8Array(await blob.arrayBuffer()), blob.name));
    } catch (error) {
      page.complain(error instanceof TraceError ? error.message : `${blob.name} cannot be read (${error.message})`);
    }
  },

  complain(text) {
    page.by("problem").textContent = text;
    page.by("problem").hidden = text === "";
  },

  showFile(file) {
    const usable = file.traces.filter((trace) => trace.steps.length > 0);
    if (usable.length === 0) {
      return page.complain(`${file.name} holds no rounds: its ${file.traces.length} requests were run without speculation; record a run with it switched on`);
    }
    page.complain(file.is_complete ? "" : `${file.name} was cut short: it has no end marker. What is there is shown.`);
    page.file = { ...file, traces: usable };
    page.by("request").replaceChildren(...usable.map((trace, i) => new Option(`${trace.request_id} (${trace.steps.length} rounds)`, i)));
    const radio = document.querySelector("[name=origin][value=trace]");
    radio.disabled = false;
    radio.checked = true;
    stepper.place = 0;
    page.drawRounds();
  },

  trace: () => page.file.traces[Number(page.by("request").value)],

  drawTrace() {
    const trace = page.trace();
    const { steps } = trace, numTokens = steps.reduce((sum, step) => sum + step.token_ids.length, 0);
    const measured = page.measured(trace);
    const facts = [
      page.file.meta.subject ?? page.file.meta.engine, `temperature ${trace.temperature}`,
      `${steps.length} rounds, ${numTokens} tokens: ${(numTokens / steps.length).toFixed(2)} a pass`,
      measured && `acceptance ${measured.value.toFixed(2)} ± ${measured.standardError.toFixed(2)} (${measured.tests} judged)`,
      measured && `theory at that acceptance: ${page.expectedOf(steps, measured.value).toFixed(2)} a pass`,
    ];
    page.by("trace-title").textContent = `${page.file.name}: ${facts.filter(Boolean).join("; ")}.`;
    page.by("use-trace").disabled = !measured;
    const viewOf = (round) => rounds.view(steps[round], (i) => page.tokenLabel(steps[round], i), (i) => page.tokenNote(steps[round], i));
    stepper.show(steps.map((step) => step.token_ids.length), viewOf, "trace");
  },

  /* Rounds may draft fewer tokens: near the end, or where a lookup finds nothing. */
  expectedOf: (steps, acceptance) => steps.reduce((sum, step) => sum + economics.expectedTokens(acceptance, step.draft_token_ids.length), 0) / steps.length,

  longest: (trace) => Math.max(...trace.steps.map((step) => step.draft_token_ids.length)),

  /* Trees accept one of several siblings, which is another kind of rate. */
  measured(trace) {
    if (trace.steps.some((step) => step.parents !== null)) return null;
    return economics.measuredAcceptance(trace.steps.map((step) => step.num_accepted), trace.steps.map((step) => step.draft_token_ids.length));
  },

  tokenLabel: (step, i) => (i === null ? `${step.token_ids[step.num_accepted]}` : `${step.draft_token_ids[i]}`),

  tokenNote(step, i) {
    const number = (value) => (value === null ? "?" : value >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(0));
    const parts = [];
    if (!step.parents && i < step.num_accepted && i < step.token_ids.length && step.token_ids[i] !== step.draft_token_ids[i]) parts.push(`but ${step.token_ids[i]} was committed`);
    const target = step.target_chances?.[i] ?? null, draft = step.draft_chances?.[i] ?? null;
    if (target !== null && draft > 0 && !step.parents) parts.push(`target ${number(target)} / draft ${number(draft)} = ${number(target / draft)}`);
    else if (target !== null) parts.push(`target ${number(target)}`);
    if (step.uniforms && !step.parents && step.uniforms[i] !== undefined) parts.push(`rolled ${number(step.uniforms[i])}`);
    return parts.join("; ");
  },

  useTrace() {
    const trace = page.trace();
    page.by("alpha").value = page.measured(trace).value;
    page.by("k").value = page.longest(trace);
    page.draw();
  },
};
page.start();

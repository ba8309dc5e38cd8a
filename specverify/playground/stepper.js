"use strict";
/* The box that walks through rounds, simulated or recorded. */
const stepper = {
  COLUMN_WIDTH: 28,
  committed: [], viewOf: null, place: 0, shown: 0, origin: "simulated",

  start() {
    const by = (id) => document.getElementById(id);
    stepper.box = by("stepper");
    by("back").addEventListener("click", () => stepper.goTo(stepper.place - 1));
    by("forward").addEventListener("click", () => stepper.goTo(stepper.place + 1));
    by("next-token").addEventListener("click", stepper.checkNext);
    by("place").addEventListener("input", (event) => stepper.goTo(event.target.valueAsNumber - 1));
    by("strip").addEventListener("click", (event) => {
      const column = event.target.closest("[data-place]");
      if (column) stepper.goTo(Number(column.dataset.place));
    });
    stepper.box.addEventListener("keydown", stepper.onKey);
  },

  onKey(event) {
    const isOnSlider = event.target.id === "place", isOnButton = event.target.tagName === "BUTTON";
    if (isOnSlider || event.altKey || event.ctrlKey || event.metaKey) return;
    const actions = {
      ArrowLeft: () => stepper.goTo(stepper.place - 1),
      ArrowRight: () => stepper.goTo(stepper.place + 1),
      Home: () => stepper.goTo(0),
      End: () => stepper.goTo(stepper.committed.length - 1),
    };
    // A focused button answers the space bar itself.
    if (!isOnButton) actions[" "] = stepper.checkNext;
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  },

  /* committed: tokens of every round; viewOf(place): from rounds.view, made when it is looked at, as there may be
     thousands. Keeps the place where the same kind of rounds is shown again. */
  show(committed, viewOf, origin) {
    Object.assign(stepper, { committed, viewOf });
    const place = origin === stepper.origin ? stepper.place : 0;
    stepper.origin = origin;
    stepper.goTo(place);
  },

  goTo(place) {
    stepper.place = Math.max(0, Math.min(place, stepper.committed.length - 1));
    stepper.shown = stepper.viewOf(stepper.place).numEvents;
    stepper.draw();
  },

  checkNext() {
    const isOver = stepper.shown >= stepper.viewOf(stepper.place).numEvents;
    if (isOver && stepper.place === stepper.committed.length - 1) return;
    if (isOver) stepper.place++;
    stepper.shown = isOver ? 0 : stepper.shown + 1;
    stepper.draw();
  },

  draw() {
    const by = (id) => document.getElementById(id);
    const view = stepper.viewOf(stepper.place), last = stepper.committed.length - 1;
    const isOver = stepper.shown >= view.numEvents;
    by("round").innerHTML = view.tokens.map((token, i) => stepper.chip(token, view.parents, i)).join("");
    by("round-text").textContent = rounds.sentence(view, stepper.place + 1, stepper.shown);
    by("place").max = last + 1;
    by("place").value = stepper.place + 1;
    by("place-text").textContent = `Round ${stepper.place + 1} of ${(last + 1).toLocaleString("en")}`;
    by("back").disabled = stepper.place === 0;
    by("forward").disabled = stepper.place === last;
    by("next-token").disabled = isOver && stepper.place === last;
    by("next-token").textContent = isOver && stepper.place < last ? "Start next round" : "Check next token";
    const room = Math.max(1, Math.floor(by("strip").clientWidth / stepper.COLUMN_WIDTH));
    const from = Math.max(0, Math.min(stepper.place - Math.floor(room / 2), last + 1 - room));
    by("strip").innerHTML = Array.from({ length: Math.min(room, last + 1) }, (_, i) => from + i).map((place) => {
      const marks = stepper.viewOf(place).tokens.map((token) => `<span class="mark ${token.kind}">${KINDS[token.kind].mark}</span>`);
      return `<div class="column ${place === stepper.place ? "here" : ""}" data-place="${place}">${marks.join("")}</div>`;
    }).join("");
    by("totals").textContent = stepper.totals();
  },

  chip(token, parents, i) {
    const isKnown = token.event <= stepper.shown;
    const kind = isKnown ? token.kind : token.isFinal ? "drafted hidden" : "drafted";
    const { mark, label } = isKnown ? KINDS[token.kind] : KINDS.drafted;
    const after = parents && !token.isFinal ? `<small>${parents[i] < 0 ? "follows the text" : `follows #${parents[i] + 1}`}</small>` : "";
    const number = after && `<i>#${i + 1}</i> `;
    return `<li class="token ${kind}" data-kind="${isKnown ? token.kind : "drafted"}"><b>${number}<span class="label">${token.label}</span></b><span>${mark} ${label}</span>${after}<small>${isKnown ? token.note : "&nbsp;"}</small></li>`;
  },

  totals() {
    const done = stepper.committed.slice(0, stepper.place + 1);
    const tokens = done.reduce((sum, count) => sum + count, 0);
    return `So far: ${tokens.toLocaleString("en")} ${tokens === 1 ? "token" : "tokens"} in ${done.length.toLocaleString("en")} target ${done.length === 1 ? "pass" : "passes"}, ${(tokens / done.length).toFixed(2)} a pass.`;
  },
};

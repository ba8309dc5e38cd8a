"use strict";
/* One round as a list of tokens, each with its kind and the verdict at which that becomes known. */
const KINDS = {
  drafted: { mark: "?", label: "drafted" },
  accepted: { mark: "✓", label: "accepted" },
  rejected: { mark: "✗", label: "rejected" },
  discarded: { mark: "–", label: "discarded" },
  residual: { mark: "↻", label: "residual" },
  bonus: { mark: "+", label: "bonus" },
  plain: { mark: "•", label: "plain" },
  cut: { mark: "✂", label: "cut off" },
};

const rounds = {
  /* step: as read from a trace. label(i): name of draft token i, label(null) of the final one; note(i): line below. */
  view(step, label, note) {
    const { verdicts, numJudged } = rounds.verdicts(step);
    const kept = step.token_ids.length;
    const tokens = step.draft_token_ids.map((_, i) => {
      const { kind, order, event } = verdicts[i];
      const isCut = kind === "accepted" && order >= kept;
      return { kind: isCut ? "cut" : kind, event, label: label(i), note: event === null ? "not looked at" : note(i) };
    });
    // In a tree also siblings of accepted tokens are rejected; only those at the end of the path end the round.
    const isRejection = verdicts.some(({ kind, order }) => kind === "rejected" && order === step.num_accepted);
    tokens.forEach((token) => { token.event ??= numJudged; });
    if (kept > step.num_accepted) {
      const kind = step.draft_token_ids.length === 0 ? "plain" : isRejection ? "residual" : "bonus";
      tokens.push({ kind, event: numJudged + 1, label: label(null), note: rounds.FINAL_NOTES[kind], isFinal: true });
    }
    return { tokens, numEvents: Math.max(1, ...tokens.map((token) => token.event)), committed: kept, parents: step.parents, start: step.start_position };
  },

  FINAL_NOTES: {
    residual: "from max(target − draft, 0)",
    bonus: "from the target, free",
    plain: "from the target, nothing was drafted",
  },

  /* For each draft token: its kind, its place among the accepted ones, the verdict number (null: never judged). */
  verdicts(step) {
    const parents = step.parents ?? step.draft_token_ids.map((_, i) => i - 1);
    const path = step.accepted_nodes ?? Array.from({ length: step.num_accepted }, (_, i) => i);
    const verdicts = parents.map(() => ({ kind: "discarded", order: null, event: null }));
    let node = -1, numJudged = 0;
    // Children are tried in order; the walk goes down where one is accepted and ends where none is.
    for (const [order, accepted] of [...path, null].entries()) {
      for (const [child, parent] of parents.entries()) {
        if (parent !== node) continue;
        numJudged++;
        verdicts[child] = { kind: child === accepted ? "accepted" : "rejected", order, event: numJudged };
        if (child === accepted) break;
      }
      node = accepted;
    }
    return { verdicts, numJudged };
  },

  /* A simulated round in the form of a trace's step: token ids are just places. */
  simulated(coins, k, acceptance) {
    let accepted = 0;
    while (accepted < k && coins[accepted] < acceptance) accepted++;
    const drafted = Array.from({ length: k }, (_, i) => i);
    return {
      draft_token_ids: drafted, token_ids: [...drafted.slice(0, accepted), k],
      num_accepted: accepted, parents: null, accepted_nodes: null, draft_chances: null, target_chances: null, uniforms: Array.from(coins.slice(0, k)),
    };
  },

  sentence(view, number, shown) {
    const count = (kind) => view.tokens.filter((token) => token.kind === kind && token.event <= shown).length;
    const numDrafted = view.tokens.filter((token) => !token.isFinal).length;
    const parts = [`${numDrafted} drafted`];
    for (const kind of ["accepted", "cut", "rejected", "discarded"]) if (count(kind)) parts.push(`${count(kind)} ${KINDS[kind].label}`);
    const isOver = shown >= view.numEvents;
    if (isOver) for (const kind of ["residual", "bonus", "plain"]) if (count(kind)) parts.push(`1 ${KINDS[kind].label} token`);
    const end = isOver ? `${view.committed} ${view.committed === 1 ? "token" : "tokens"} committed` : "verification goes on";
    const place = view.start === undefined ? "" : `, from position ${view.start}`;
    return `Round ${number}${place}: ${parts.join(", ")}; ${end}.`;
  },
};

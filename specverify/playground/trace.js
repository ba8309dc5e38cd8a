"use strict";
/* Reads a specverify trace file (JSON lines) into what the page shows. specverify/playground/traces.py does the same
   for a trace that is embedded; tests/playground compares the two on real traces: change both. */
class TraceError extends Error {}

const traceReader = {
  FORMAT: "specverify-trace",
  versions: [1], // of the format; the page says which ones its specverify reads

  /* bytes: Uint8Array. Throws TraceError with a sentence for the reader. A file that was cut short is read as far as
     it goes, with is_complete false. */
  async read(bytes, name) {
    const text = new TextDecoder().decode(bytes);
    const lines = text.split("\n");
    const isLastLineWhole = lines[lines.length - 1] === "";
    if (isLastLineWhole) lines.pop();
    if (lines.length === 0) throw new TraceError(`${name} is empty; a trace file begins with a header line`);
    const file = { name, meta: {}, is_complete: false, traces: [] };
    let open = null;
    for (const [index, line] of lines.entries()) {
      const number = index + 1;
      if (file.is_complete) throw new TraceError(`${name} goes on after its end marker, at line ${number}; two files in one?`);
      const record = traceReader.record(line, number, name, number === lines.length && !isLastLineWhole);
      if (record === null) break;
      const damaged = (what) => new TraceError(`${name} is damaged: line ${number} ${what}; record it again`);
      try {
        if (number === 1) file.meta = traceReader.header(record, name);
        else if (record.type === "request" && open === null) open = traceReader.request(record);
        else if (record.type === "step" && open !== null) open.steps.push(traceReader.step(record));
        else if (record.type === "result" && open !== null) {
          if (record.num_steps !== open.steps.length) throw damaged(`counts ${record.num_steps} steps, but ${open.steps.length} are there`);
          file.traces.push(open);
          open = null;
        } else if (record.type === "end" && open === null) {
          if (record.num_traces !== file.traces.length) throw damaged(`counts ${record.num_traces} traces, but ${file.traces.length} are there`);
          await traceReader.checkDigest(bytes, index, record.sha256, name);
          file.is_complete = true;
        } else throw damaged(`is a ${JSON.stringify(record.type)} line out of place`);
      } catch (error) {
        throw error instanceof TraceError ? error : damaged(`does not fit (${error.message})`);
      }
    }
    if (open !== null) file.traces.push(open);
    return file;
  },

  record(line, number, name, mayBeCut) {
    let record;
    try {
      // Python writes NaN and Infinity, which JSON does not have.
      record = JSON.parse(line.replace(/(?<=[[,:])(?:-?Infinity|NaN)(?=[,\]}])/g, "null"));
    } catch {
      if (number === 1) throw new TraceError(`${name} is not a trace file: line 1 is not JSON; give a file that specverify record wrote`);
      if (mayBeCut) return null;
      throw new TraceError(`${name} is damaged: line ${number} is not JSON; record it again`);
    }
    if (record === null || typeof record !== "object" || Array.isArray(record)) throw new TraceError(`${name} is damaged: line ${number} is not a JSON object; record it again`);
    return record;
  },

  header(record, name) {
    if (record.type !== "header" || record.format !== traceReader.FORMAT) throw new TraceError(`${name} is not a trace file: its first line is no ${traceReader.FORMAT} header`);
    if (!traceReader.versions.includes(record.version)) throw new TraceError(`${name} has format version ${record.version}; this page reads ${traceReader.versions.join(" and ")}: make the page with the specverify that wrote the file`);
    return record.meta ?? {};
  },

  request(record) {
    return {
      request_id: String(traceReader.known(record, "request_id")),
      temperature: traceReader.known(record, "sampling").temperature,
      steps: [],
    };
  },

  step(record) {
    const drafted = traceReader.ints(record, "draft_token_ids");
    const parents = record.parents === undefined ? null : traceReader.ints(record, "parents");
    return {
      start_position: traceReader.int(record, "start_position"),
      draft_token_ids: drafted,
      token_ids: traceReader.ints(record, "token_ids"),
      num_accepted: traceReader.int(record, "num_accepted"),
      parents,
      accepted_nodes: parents === null ? null : traceReader.ints(record, "accepted_nodes"),
      draft_chances: traceReader.chances(record.draft_probs, drafted, (i) => i),
      target_chances: traceReader.chances(record.target_probs, drafted, (i) => (parents === null ? i : parents[i] + 1)),
      uniforms: record.uniforms ?? null,
    };
  },

  known(record, key) {
    if (record[key] === undefined) throw new Error(`it lacks ${key}`);
    return record[key];
  },

  int(record, key) {
    if (!Number.isInteger(traceReader.known(record, key))) throw new Error(`${key} is not a whole number`);
    return record[key];
  },

  ints(record, key) {
    const values = traceReader.known(record, key);
    if (!Array.isArray(values) || !values.every(Number.isInteger)) throw new Error(`${key} is not a list of whole numbers`);
    return values;
  },

  /* Probability of each drafted token in its row of a recorded array [rows, vocab]; null where nothing was recorded. */
  chances(array, tokens, rowOf) {
    if (array === undefined || array === null) return null;
    const vocab = array.shape[1];
    const flat = array.values === undefined ? traceReader.fromBase64(array) : null;
    if (flat === undefined) return null;
    return tokens.map((token, i) => {
      const value = flat ? flat[rowOf(i) * vocab + token] : array.values[rowOf(i)]?.[token];
      if (value === undefined) throw new Error(`token ${token} has no probability`);
      return value;
    });
  },

  /* Little-endian numbers, as every browser's machine stores them; undefined for float16, which old browsers lack. */
  fromBase64(array) {
    const kinds = { float64: Float64Array, float32: Float32Array, float16: globalThis.Float16Array };
    const kind = kinds[array.dtype];
    return kind && new kind(Uint8Array.from(atob(array.base64), (letter) => letter.charCodeAt(0)).buffer);
  },

  /* numLines: the lines before the end marker, which its digest covers. */
  async checkDigest(bytes, numLines, wanted, name) {
    // Pages from http have no digests; the counts above still hold.
    if (!globalThis.crypto?.subtle) return;
    let end = 0;
    for (let line = 0; line < numLines; line++) end = bytes.indexOf(10, end) + 1;
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.subarray(0, end)));
    const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hex !== wanted) throw new TraceError(`${name} was changed after it was written: its digest does not fit; record it again`);
  },
};

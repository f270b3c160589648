// Dither in the browser: a record is randomised here and only the randomised answer leaves. No dependencies.
// The same bytes as Python's dither.reports and dither.mechanisms, checked by the golden vectors in ../vectors.
// Thresholds are integers over 2^threshold_bits; no floating-point draw decides a report.

/** Something that must not be done: a plan above the cap, a changed schema, bytes that are no report. */
export class Refused extends Error {}

const refuse = (why) => { throw new Refused(why); };
const need = (condition, why) => condition || refuse(why);
const whole = (n) => Number.isSafeInteger(n);
const utf8 = (text) => new TextEncoder().encode(text);
export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
export const fromHex = (text) => {
  need(typeof text === 'string' && /^([0-9a-f]{2})*$/i.test(text), 'not hexadecimal');
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
};
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest('SHA-256', join(...parts)));
const little = (bytes, from, to) => {
  let n = 0n;
  for (let i = to - 1; i >= from; i--) n = (n << 8n) | BigInt(bytes[i]);
  return n;
};
const number = (n, width) => Uint8Array.from({ length: width }, (_, i) => Number((BigInt(n) >> BigInt(8 * i)) & 255n));
function join(...parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const part of parts) { out.set(part, at); at += part.length; }
  return out;
}
// ln of a ratio, rounded up by more than the error of a double, so that no ledger counts too little.
const lnUp = (over, under, times = 1) => {
  const ln = Math.log(Number(over) / Number(under)) * times;
  return ln + 4e-15 * (1 + ln);
};
const bitsOf = (report) => report.reduce((n, byte) => { for (; byte; byte &= byte - 1) n++; return n; }, 0);

const FIELDS = {
  grr: ['cells', 'other'], sue: ['cells', 'true_set', 'other_set'], oue: ['cells', 'true_set', 'other_set'],
  olh: ['cells', 'buckets', 'other'], subset: ['cells', 'size', 'missing'], bloom: ['cells', 'bits', 'hashes', 'flipped', 'seed'],
  hadamard: ['cells', 'columns', 'flip'],
};

/** A mechanism from its integers: {cells, reportBytes, drawBytes, epsilon(), randomise(value, random), check(report)}. */
export function mechanism(m) {
  need(Object.hasOwn(FIELDS, m?.name ?? ''), 'not a mechanism this version knows');
  const names = FIELDS[m.name];
  need(Object.keys(m).length === names.length + 2, 'a mechanism needs its own numbers and no others');
  need([...names, 'threshold_bits'].every((f) => whole(m[f]) && m[f] >= 0), 'a mechanism needs whole numbers');
  need(m.threshold_bits % 8 === 0 && m.threshold_bits >= 8 && m.threshold_bits <= 48, 'draws of this width are not supported');
  need(m.cells >= 2 && m.cells <= 2 ** 31, 'a mechanism needs at least 2 cells, and not too many');
  const made = MAKERS[m.name](m, BigInt(2 ** m.threshold_bits), m.threshold_bits / 8);
  const { randomise, check } = made;
  return {
    ...made,
    cells: m.cells,
    async randomise(value, random) {
      need(whole(value) && value >= 0 && value < m.cells, 'the value is outside the domain');
      const draws = random(made.drawBytes);
      need(draws.length === made.drawBytes, 'too few random bytes');
      return randomise(value, draws);
    },
    check(report) {
      need(report.length === made.reportBytes, 'a report of another length was expected');
      check(report);
    },
  };
}

// Randomised response over k answers: the draws below keep are the truth, the rest shared by the others.
const respond = (draw, keep, other, truth) => {
  if (draw < keep) return truth;
  const answer = Number((draw - keep) / other);
  return answer + (answer >= truth ? 1 : 0);
};
const noStrayBits = (report, bits) =>
  need(bits % 8 === 0 || report[report.length - 1] >> bits % 8 === 0, 'a bit beyond the last one is set');

function unary(m, all, step) {
  const [p, q] = [BigInt(m.true_set), BigInt(m.other_set)];
  need(q >= 1n && q < p && p < all, 'thresholds that give no guarantee');
  return {
    reportBytes: Math.ceil(m.cells / 8),
    drawBytes: m.cells * step,
    epsilon: async () => lnUp(p * (all - q), q * (all - p)),
    randomise(value, draws) {
      const out = new Uint8Array(Math.ceil(m.cells / 8));
      for (let cell = 0; cell < m.cells; cell++) {
        if (little(draws, cell * step, (cell + 1) * step) < (cell === value ? p : q)) out[cell >> 3] |= 1 << (cell & 7);
      }
      return out;
    },
    check: (report) => noStrayBits(report, m.cells),
  };
}

const MAKERS = {
  sue: unary,
  oue: unary,
  grr(m, all, step) {
    const other = BigInt(m.other), keep = all - BigInt(m.cells - 1) * other;
    need(other >= 1n && other < keep, 'too few draws for the true cell');
    const width = Math.ceil((32 - Math.clz32(m.cells - 1)) / 8);
    return {
      reportBytes: width,
      drawBytes: step,
      epsilon: async () => lnUp(keep, other),
      randomise: (value, draws) => number(respond(little(draws, 0, step), keep, other, value), width),
      check: (report) => need(little(report, 0, width) < BigInt(m.cells), 'a cell outside the domain'),
    };
  },
  olh(m, all, step) {
    const other = BigInt(m.other), keep = all - BigInt(m.buckets - 1) * other;
    need(m.cells <= 65536 && m.buckets >= 2 && m.buckets <= 4096, 'too many cells or buckets');
    need(other >= 1n && other < keep, 'epsilon is too small');
    const width = m.buckets <= 256 ? 1 : 2;
    return {
      reportBytes: 8 + width,
      drawBytes: 8 + step,
      epsilon: async () => lnUp(keep, other),
      randomise(value, draws) {
        const hash = ((little(draws, 0, 4) * BigInt(value) + little(draws, 4, 8)) & 0xffffffffn) >> 16n;
        const bucket = Number((hash * BigInt(m.buckets)) >> 16n);
        return join(draws.subarray(0, 8), number(respond(little(draws, 8, 8 + step), keep, other, bucket), width));
      },
      check: (report) => need(little(report, 8, 8 + width) < BigInt(m.buckets), 'a bucket outside the range'),
    };
  },
  subset(m, all, step) {
    need(m.size >= 1 && m.size < m.cells && m.cells <= 2 ** 20, 'a subset of this size is impossible');
    const size = BigInt(m.size), missing = BigInt(m.missing), arcs = BigInt(m.cells - m.size);
    const covering = (all - arcs * missing) / size, left = all - size * covering;
    need(missing >= 1n && covering * arcs > left, 'thresholds that give no guarantee');
    return {
      reportBytes: Math.ceil(m.cells / 8),
      drawBytes: m.cells * 8 + step,
      // A set that holds the value against one that does not, and how uneven keys of 64 bits may make the orders.
      epsilon: async () => lnUp(covering * arcs, left) + (2 * m.cells * m.cells) / 2 ** 64,
      randomise(value, draws) {
        const keys = Array.from({ length: m.cells }, (_, i) => little(draws, 8 * i, 8 * i + 8));
        const order = keys.map((_, i) => i).sort((i, j) => (keys[i] < keys[j] ? -1 : keys[i] > keys[j] ? 1 : i - j));
        const draw = little(draws, m.cells * 8, draws.length), hits = size * covering, at = order.indexOf(value);
        const start = draw < hits ? at - Number(draw / covering) : at + 1 + Number((draw - hits) % arcs);
        const out = new Uint8Array(Math.ceil(m.cells / 8));
        for (let i = 0; i < m.size; i++) {
          const cell = order[(start + i + m.cells) % m.cells];
          out[cell >> 3] |= 1 << (cell & 7);
        }
        return out;
      },
      check(report) {
        noStrayBits(report, m.cells);
        need(bitsOf(report) === m.size, 'a subset of another size was expected');
      },
    };
  },
  bloom(m, all, step) {
    const flipped = BigInt(m.flipped), bytes = Math.ceil(m.bits / 8);
    need(m.cells <= 65536 && m.hashes >= 1 && m.hashes <= 64 && m.hashes < m.bits, 'a filter of this size is impossible');
    need(m.cells * bytes <= 2 ** 26, 'filters that are too large');
    need(flipped >= 1n && flipped < all / 2n, 'a flip probability that gives no guarantee');
    const filters = new Map();
    const filter = async (value) => {
      if (filters.has(value)) return filters.get(value);
      const set = new Set();
      for (let counter = 0; set.size < m.hashes; counter++) {
        const digest = await sha256(utf8(`dither-bloom:${m.seed}:${value}:${counter}`));
        for (let i = 0; i < 32 && set.size < m.hashes; i += 4) set.add(Number(little(digest, i, i + 4) % BigInt(m.bits)));
      }
      const out = new Uint8Array(bytes);
      for (const bit of set) out[bit >> 3] |= 1 << (bit & 7);
      filters.set(value, out);
      return out;
    };
    return {
      reportBytes: bytes,
      drawBytes: m.bits * step,
      async epsilon() {
        // The largest number of bits in which two filters differ; its bound, if that takes too long to find.
        const most = 2 * Math.min(m.hashes, m.bits - m.hashes), found = new Map();
        let distance = 0, work = Math.floor(2 ** 24 / bytes);
        for (let v = 0; v < m.cells; v++) { const f = await filter(v); found.set(toHex(f), f); }
        const distinct = [...found.values()];
        for (let i = 0; i < distinct.length && distance < most; i++) {
          for (let j = 0; j < i && distance < most; j++) {
            distance = Math.max(distance, bitsOf(distinct[i].map((x, k) => x ^ distinct[j][k])));
            if (--work === 0) distance = most;
          }
        }
        need(distance > 0, 'all cells share one filter');
        return lnUp(all - flipped, flipped, distance);
      },
      async randomise(value, draws) {
        const out = (await filter(value)).slice();
        for (let bit = 0; bit < m.bits; bit++) {
          if (little(draws, bit * step, (bit + 1) * step) < flipped) out[bit >> 3] ^= 1 << (bit & 7);
        }
        return out;
      },
      check: (report) => noStrayBits(report, m.bits),
    };
  },
  hadamard(m, all, step) {
    need(m.columns >= 1 && m.columns <= m.cells && m.cells % m.columns === 0, 'cells that form no rows');
    const bitsFor = (count) => 32 - Math.clz32(count - 1);
    const columnBits = bitsFor(m.columns), bits = columnBits + bitsFor(m.cells / m.columns), flip = BigInt(m.flip);
    need(bits <= 22, 'too many cells');
    need(flip >= 1n && flip < all / 2n, 'a flip probability that gives no guarantee');
    const indexBytes = Math.ceil(bits / 8), width = Math.ceil((bits + 1) / 8);
    return {
      reportBytes: width,
      drawBytes: indexBytes + step,
      epsilon: async () => lnUp(all - flip, flip),
      randomise(value, draws) {
        const index = Number(little(draws, 0, indexBytes)) & (2 ** bits - 1);
        let parity = little(draws, indexBytes, indexBytes + step) < flip ? 1 : 0;
        for (let both = index & ((Math.floor(value / m.columns) << columnBits) | value % m.columns); both; both &= both - 1) parity ^= 1;
        return number(2 * index + parity, width);
      },
      check: (report) => need(little(report, 0, width) < BigInt(2 ** (bits + 1)), 'a coefficient outside the range'),
    };
  },
};

/** The bytes of an upload. */
export function encodeEnvelope(campaign, round, reports) {
  need(campaign.length === 16, 'a campaign id has 16 bytes');
  need(whole(round) && round >= 0 && round < 65536, 'a round beyond its range');
  need(reports.length >= 1 && reports.length <= 1000, 'a request carries 1 to 1000 reports');
  const parts = [utf8('DTR1'), campaign, number(round, 4), number(reports.length, 4)];
  for (const { token, question, payload } of reports) {
    need(token.length === 32, 'a token has 32 bytes');
    need(whole(question) && question >= -1 && question < 65535, 'a question beyond its range');
    need(payload.length >= 1 && payload.length <= 16384, 'a report has 1 to 16384 bytes');
    parts.push(token, number(question === -1 ? 65535 : question, 2), number(payload.length, 2), payload);
  }
  const body = join(...parts);
  need(body.length <= 1 << 20, 'an upload has at most 1 MiB');
  return body;
}

const digest = (purpose, token, campaign, round) =>
  sha256(utf8(`dither-1:${purpose}\0`), token, campaign, number(round, 4));
const fraction = (d) => {
  const view = new DataView(d.buffer);
  return (view.getUint32(0) * 2 ** 21 + (view.getUint32(4) >>> 11)) / 2 ** 53;
};
export const reportId = (token, campaign, round) => digest('report', token, campaign, round);
export const tokenHash = (token) => sha256(utf8('dither-1:token\0'), token);
export const place = async (token, campaign) => fraction(await digest('place', token, campaign, 0));

/** Whether the round that begins at `start` asks this participant. */
export async function isAsked(token, campaign, start, population) {
  const end = start + population, at = await place(token, campaign);
  return start <= at && at < (end >= 1 - 1e-9 ? 1 : end);
}

/** The question this participant answers; -1 for all of a split plan. */
export async function pick(token, campaign, plan) {
  if (plan.split) return -1;
  const point = fraction(await digest('question', token, campaign, plan.round));
  let total = 0, last = 0;
  for (let i = 0; i < plan.shares.length; i++) {
    total += plan.shares[i];
    if (plan.shares[i] > 0) { last = i; if (point < total) return i; }
  }
  return last;
}

/** What answering a plan gives away about one record. */
export async function planEpsilon(plan) {
  const parts = await Promise.all(plan.questions.map((q) => mechanism(q.mechanism).epsilon()));
  return plan.split ? parts.reduce((a, b) => a + b, 0) * (1 + 1e-15 * parts.length) : Math.max(...parts);
}

const answers = (a) => (a.kind === 'numeric' ? a.edges.length - 1 : a.kind === 'boolean' ? 2 : a.values.length);
const cardinality = (a) => answers(a) + (a.missing ? 1 : 0);

/** Check what a collector announces; gives the epsilon of its plan, 0 if no round is open. */
export async function checkAnnouncement(a) {
  need(a?.format === 'dither-campaign-1', 'not an announcement this version reads');
  need(fromHex(a.campaign).length === 16, 'no proper campaign id');
  if (a.plan === null) return 0;
  const { questions, shares, split, population } = a.plan, known = new Map(a.schema.attributes.map((x) => [x.name, x]));
  need(questions.length >= 1 && questions.length < 65536, 'a plan needs questions');
  need(split ? shares.length === 0 : shares.length === questions.length, 'a plan has either shares or split');
  need(split || (shares.every((s) => s >= 0) && Math.abs(shares.reduce((x, y) => x + y, 0) - 1) <= 1e-9), 'wrong shares');
  need(population > 0 && population <= 1 && a.start >= 0 && a.start < 1, 'a round that asks nobody');
  let length = 0;
  for (const { attributes, mechanism: m } of questions) {
    need(attributes.length >= 1 && new Set(attributes).size === attributes.length, 'a question about nothing or twice');
    need(attributes.every((n) => known.has(n)), 'a question that the schema lacks');
    const made = mechanism(m);
    need(made.cells === attributes.reduce((k, n) => k * cardinality(known.get(n)), 1), 'a question of other cells');
    need(made.reportBytes <= 16384 && made.drawBytes <= 1 << 20, 'a question too large for a device');
    length += made.reportBytes;
  }
  need(!split || length <= 16384, 'a report too large to send');
  const epsilon = await planEpsilon(a.plan);
  need(epsilon <= a.epsilon, 'the plan spends more than the campaign announces');
  return epsilon;
}

/** The code of each attribute of a record, by name. */
export function encodeRecord(schema, record) {
  const codes = {};
  for (const a of schema.attributes) {
    const value = record[a.name];
    let code = -1;
    if (value === undefined || value === null) code = a.missing ? answers(a) : -1;
    else if (a.kind === 'boolean') code = [false, true].indexOf(value);
    else if (a.kind !== 'numeric') code = a.values.indexOf(value);
    else if (typeof value === 'number' && value >= a.edges[0] && value <= a.edges.at(-1)) {
      code = Math.min(a.edges.findLastIndex((edge) => edge <= value), a.edges.length - 2);
    }
    codes[a.name] = need(code >= 0, `${a.name}: the value is not in the domain`) && code;
  }
  return codes;
}

const systemRandom = (count) => {
  const out = new Uint8Array(count);
  for (let i = 0; i < count; i += 65536) crypto.getRandomValues(out.subarray(i, Math.min(count, i + 65536)));
  return out;
};
const exclusively = (name, work) => globalThis.navigator?.locks?.request(name, work) ?? work();

/**
 * Take part once: look, check against cap and ledger, randomise, keep, send; a retry sends the same bytes.
 * `allowed`, if given, lists the attributes that may be asked about.
 * `storage` is localStorage or alike; the books of a campaign are written there before anything is sent.
 * Gives {result: 'acknowledged' | 'waiting' | 'refused' | 'not-asked' | 'not-open', spent}.
 */
export function takePart({
  url, campaign, record, cap, token, allowed, storage = localStorage, random = systemRandom, fetch = globalThis.fetch,
}) {
  return exclusively(`dither:${campaign}`, async () => {
    const address = `${url.replace(/\/$/, '')}/v1/campaigns/${campaign}`, key = `dither:${campaign}`;
    const a = await (await fetch(address, { credentials: 'omit', referrerPolicy: 'no-referrer' })).json();
    const epsilon = await checkAnnouncement(a), id = fromHex(campaign), plan = a.plan;
    need(a.campaign === campaign, 'the collector announces another campaign');
    const schema = toHex(await sha256(utf8(JSON.stringify(a.schema))));
    const books = JSON.parse(storage.getItem(key)) ?? { schema, cap, token: token ?? toHex(random(32)), answers: {}, memo: {} };
    need(books.schema === schema, 'the campaign has changed its schema');
    const spent = () => Object.values(books.answers).reduce((n, x) => n + x.epsilon, 0);
    if (plan === null) return { result: 'not-open', spent: spent() };
    const digestOfPlan = toHex(await sha256(utf8(JSON.stringify([a.start, plan]))));
    let answer = books.answers[plan.round];
    if (!answer) {
      const own = fromHex(books.token);
      if (!(await isAsked(own, id, a.start, plan.population))) return { result: 'not-asked', spent: spent() };
      const question = await pick(own, id, plan), codes = encodeRecord(a.schema, record), parts = [];
      const byName = new Map(a.schema.attributes.map((x) => [x.name, x]));
      const asked = question === -1 ? plan.questions : [plan.questions[question]];
      need(!allowed || asked.every((q) => q.attributes.every((n) => allowed.includes(n))), 'a question that is not allowed');
      const known = asked.map((q) => books.memo[[...q.attributes].sort().join('\0')]);
      asked.forEach((q, i) => need(!known[i] || known[i].question === JSON.stringify(q), 'a question is asked a second time'));
      const cost = known.every(Boolean) ? 0 : epsilon;
      need(spent() + cost <= books.cap, 'the plan would exceed the cap');
      for (const [i, q] of asked.entries()) {
        const cell = q.attributes.reduce((c, n) => c * cardinality(byName.get(n)) + codes[n], 0);
        const payload = known[i] ? fromHex(known[i].payload) : await mechanism(q.mechanism).randomise(cell, random);
        books.memo[[...q.attributes].sort().join('\0')] = { question: JSON.stringify(q), payload: toHex(payload) };
        parts.push(payload);
      }
      const body = encodeEnvelope(id, plan.round, [{ token: own, question, payload: join(...parts) }]);
      answer = books.answers[plan.round] = { plan: digestOfPlan, epsilon: cost, body: toHex(body), state: 'waiting' };
      storage.setItem(key, JSON.stringify(books)); // before anything is sent: noise is never drawn twice
    }
    need(answer.plan === digestOfPlan, 'the round was answered, and its plan has changed');
    if (answer.state === 'waiting') {
      const headers = { 'content-type': 'application/vnd.dither.reports' };
      const sent = { method: 'POST', headers, body: fromHex(answer.body), credentials: 'omit', referrerPolicy: 'no-referrer' };
      const status = await fetch(`${address}/reports`, sent).then((r) => r.status, () => 0);
      if (status === 200 || status === 201) answer.state = 'acknowledged';
      else if (status >= 400 && status < 500 && ![408, 425, 429].includes(status)) answer.state = 'refused';
      storage.setItem(key, JSON.stringify(books));
    }
    return { result: answer.state, spent: spent() };
  });
}

/** Types of dither.js: a record is randomised in the browser, and only the randomised answer leaves. */

export type Kind = 'categorical' | 'ordinal' | 'boolean' | 'numeric' | 'date' | 'datetime' | 'duration';
export type Value = string | number | boolean;
/** Bytes from a cryptographic generator: `crypto.getRandomValues` unless given. */
export type Random = (count: number) => Uint8Array;

/** One attribute of the announced schema. `question`, `help` and `labels` are for people to read, never to be believed. */
export interface Attribute {
  name: string;
  kind: Kind;
  values?: Value[];
  edges?: (number | string)[];
  atoms?: number[];
  unit?: number;
  cycles?: ('weekday' | 'hour')[];
  groups?: string[];
  missing?: true;
  clip?: true;
  question?: string;
  help?: string;
  /** What people read for each answer; one more for the missing answer, if it has one. */
  labels?: string[];
}

/** A mechanism as a plan states it: its name and its integers. */
export interface MechanismNumbers {
  name: string;
  cells: number;
  threshold_bits: number;
  [number: string]: unknown;
}

export interface Question {
  attributes: string[];
  mechanism: MechanismNumbers;
  grouped?: string[];
  rounded?: boolean;
}

export interface Plan {
  round: number;
  questions: Question[];
  shares: number[];
  split: boolean;
  population: number;
  tally: 'counts' | 'patterns';
}

export interface Announcement {
  format: 'dither-campaign-1';
  /** 32 hexadecimal digits. */
  campaign: string;
  name: string;
  title?: string;
  purpose?: string;
  epsilon_reason?: string;
  contact?: string;
  /** The day to whose end it takes reports ("2027-01-31"), or the instant ("2027-01-31T18:00:00Z"). */
  closes?: string | null;
  closes_at_reports?: number | null;
  state: 'draft' | 'open' | 'closing' | 'collected' | 'finalised';
  epsilon: number;
  participation: 'open' | 'tokens';
  /** 'arrival': whoever comes is asked in the open round, once in the campaign; 'token' (also if absent): each token belongs to one round. */
  assignment?: 'arrival' | 'token';
  schema: { format: 'dither-schema-1'; attributes: Attribute[]; rules?: object[] };
  schema_fingerprint: string;
  start: number;
  plan: Plan | null;
  /** The number of reports at which the open round closes by itself, and the seconds since 1970 at which it does at the latest. */
  wanted?: number | null;
  round_closes?: number | null;
  /** The language of all texts, such as 'de'; the collector's own page has the campaign's other languages too. */
  language?: string;
  /** Who gets a histogram of the number that is asked for, with which bins; null for other methods. */
  consumers?: { name: string; edges: number[]; epsilon?: number }[] | null;
}

/** Something that must not be done. */
export class Refused extends Error {
  code: 'cap' | 'moved' | 'changed' | 'token' | 'storage' | 'not-allowed' | 'invalid';
}

/** No answer came, or none of the collector's: try again later. */
export class Unreachable extends Error {
  code: 'offline' | 'no-campaign';
  /** Seconds until the next try, a random part included. */
  retryAfter: number;
}

export interface TakePartOptions {
  /** https, or http to this very machine. */
  url: string;
  campaign: string;
  record: Record<string, unknown>;
  /** The most epsilon for this campaign; of several given over time the smallest counts. */
  cap: number;
  /** The most epsilon for all campaigns of this storage within the last `period` seconds (without one: for ever); kept until another is given. */
  capTotal?: number;
  period?: number;
  /** An issued token, 64 hexadecimal digits; without it one is drawn and kept from the first look on. */
  token?: string;
  /**
   * Whether the token came from outside, so that another device may hold it too; true if a token is given. Then the
   * collector is asked first, and nothing is drawn unless it says that no report with this token is stored. False for a
   * token that the caller drew on this device.
   */
  ticket?: boolean;
  /** The attributes that may be asked about; a question about any other is refused. */
  allowed?: string[];
  /** The questions that the person was shown (`chosen`); if others would be answered, nothing is (code 'not-allowed'). */
  questions?: Question[];
  /** The one schema that is answered. */
  schemaFingerprint?: string;
  /** Token and reports go to the server of the first visit only, unless the collector has moved to this `url`. */
  moved?: boolean;
  /** `localStorage` or alike; the books are written there before anything is sent. */
  storage?: Pick<Storage, 'getItem' | 'setItem'>;
  random?: Random;
  /** Seconds since 1970. */
  clock?: () => number;
  fetch?: typeof fetch;
}

export interface TakePartResult {
  /**
   * 'answered': another answer of this participant counts; 'used-elsewhere': a report with this ticket is stored that this
   * device did not make, and nothing was drawn or sent here; 'waiting': call again later, the same bytes are sent.
   */
  result: 'acknowledged' | 'answered' | 'used-elsewhere' | 'waiting' | 'refused' | 'not-asked' | 'not-open';
  /** Why it is not stored by this call; null if it is. */
  code: null | 'answered' | 'used-elsewhere' | 'offline' | 'closed' | 'not-open' | 'not-asked' | 'token' | 'invalid';
  /** The epsilon spent on the campaign so far. */
  spent: number;
  /** The attributes just answered whose value the announced domain lacks; nothing of it is sent. */
  outside: string[];
  /** The id of this participant's report, 64 hexadecimal digits; '' if there is none. */
  receipt: string;
  /** When the open round closes, in seconds since 1970, for whom a later one asks; null if nobody knows. */
  comeBack: number | null;
  /** With 'waiting': seconds until the next try, a random part included; else null. */
  retryAfter: number | null;
}
/** Seconds until the next try: what the server asks for (0 if nothing) plus a random part of the longer of it and `backoff`. */
export function retryPause(asked?: number, backoff?: number): number;

/** One request without redirects, over in 30 s and of at most `most` bytes. Throws Unreachable or Refused. */
export function ask(
  fetch: typeof globalThis.fetch, address: string, most: number, options?: RequestInit,
): Promise<{ status: number; type: string; text: string; retryAfter: number }>;

/** Take part once: look, check against caps and ledger, randomise, keep, send; a retry sends the same bytes. Throws Refused or Unreachable. */
export function takePart(options: TakePartOptions): Promise<TakePartResult>;

/**
 * Whether a report with this id (a receipt, 64 hexadecimal digits) is stored: for a page that wants to know before
 * anything is typed whether a ticket was used. Throws Unreachable if the collector does not say.
 */
export function isStored(options: { url: string; campaign: string; receipt: string; fetch?: typeof fetch }): Promise<boolean>;

/** Read and check the text that a collector announces; epsilon is that of the open round, 0 if there is none. */
export function readAnnouncement(text: string): Promise<{ announcement: Announcement; fingerprint: string; epsilon: number }>;

export interface Chosen {
  /** Whether the open round asks whoever has this token; whether a later one does. */
  asked: boolean;
  later: boolean;
  /** The number of the question, -1 for all of a split plan, null if not asked. */
  question: number | null;
  questions: Question[];
  /** The attributes that the answer will be about, and no others. */
  attributes: string[];
}

/** Before anything is typed: what the answer of whoever has this token (32 bytes) will be about. */
export function chosen(announcement: Announcement, token: Uint8Array): Promise<Chosen>;

/** A report for practice, a part per question: drawn anew at every call, kept and sent nowhere, no draw of the real one. */
export function practise(
  announcement: Announcement, questions: Question[], record: Record<string, unknown>, random?: Random,
): Promise<{ parts: Uint8Array[]; outside: string[] }>;

/** The chances that a report speaks for an answer if it is yours, and if another one is, from the mechanism's integers; `of100` both in whole people of a hundred. null where a report does not speak for single answers. */
export function odds(mechanism: MechanismNumbers): { own: number; other: number; of100: [number, number] } | null;

export interface Mechanism {
  cells: number;
  reportBytes: number;
  drawBytes: number;
  epsilon(): Promise<number>;
  randomise(value: number, random: Random): Promise<Uint8Array>;
  check(report: Uint8Array): void;
}
export function mechanism(numbers: MechanismNumbers): Mechanism;

export function encodeEnvelope(
  campaign: Uint8Array, round: number, reports: { token: Uint8Array; question: number; payload: Uint8Array }[],
): Uint8Array;
/** The id under which a report is stored; without a round (null) the one id of a participant in all of them. */
export function reportId(token: Uint8Array, campaign: Uint8Array, round: number | null): Promise<Uint8Array>;
export function tokenHash(token: Uint8Array): Promise<Uint8Array>;
export function place(token: Uint8Array, campaign: Uint8Array): Promise<number>;
export function isAsked(token: Uint8Array, campaign: Uint8Array, start: number, population: number): Promise<boolean>;
export function pick(token: Uint8Array, campaign: Uint8Array, plan: Plan): Promise<number>;
export function planEpsilon(plan: Plan): Promise<number>;
export function codeOf(attribute: Attribute, value: unknown): number | null;
export function cellOf(question: Question, known: Map<string, Attribute>, codes: Map<string, number>): number;
export function levelOf(attribute: Attribute, value: unknown, levels: number, draw: number): number | null;
export function drawBelow(count: number, random: Random): number;
export function verdict(status: number, type: string, text: string): 'acknowledged' | 'answered' | 'refused' | 'waiting';
export function toHex(bytes: Uint8Array): string;
export function fromHex(text: string): Uint8Array;

// A text as it was tokenized, line by line: syntax, token boundaries, what neighbouring windows share.

import { make } from "./dom.js";
import { count, counted } from "./telling.js";

export const SPECIAL = 1;
const [BEFORE, AFTER] = [2, 4];
export const MIDDLE = 8;

const FEED = "feed";
// Names of classes are ours alone, whatever a dataset says.
const KINDS = ["keyword", "name", "builtin", "string", "comment", "number", "operator", "odd", FEED];
const SYNTAX = new Map(KINDS.map((kind) => [kind, `syntax-${kind}`]));
const SHARED = new Map([[BEFORE, "before"], [AFTER, "after"], [BEFORE | AFTER, "both"]]);
const SHARED_MARKS = new Map([[BEFORE, "↑"], [AFTER, "↓"], [BEFORE | AFTER, "↕"]]);
const LINES_PER_BLOCK = 60;

/**
 * Lines, each an element. `starts` tells by token what begins there: {line: its number or null, head: element above it,
 * edge: element in the gutter}.
 */
function drawnLines(tokens, strokes, starts) {
  const sheet = new Sheet(tokens);
  let last = -1;
  for (const [token, kind, text] of strokes) {
    for (let passed = last + 1; passed <= token; passed++) {
      if (starts.has(passed)) sheet.start(starts.get(passed));
    }
    last = Math.max(last, token);
    sheet.write(token, kind, text);
  }
  return sheet.finished();
}

class Sheet {
  constructor(tokens) {
    this.tokens = tokens;
    this.fragment = document.createDocumentFragment();
    this.number = null;
    this.lastShared = null;
    this.block = null;
    this.newLine();
  }

  newLine() {
    if (this.line) this.closeLine();
    if (!this.block || this.block.childElementCount >= LINES_PER_BLOCK) {
      this.block = make("div", { class: "block" });
      this.fragment.append(this.block);
    }
    this.line = make("div", { class: "line" });
    this.shared = 0;
    this.block.append(this.line);
  }

  closeLine() {
    const mark = SHARED_MARKS.get(this.shared);
    if (mark) this.line.dataset.mark = mark;
  }

  start({ line, head, edge }) {
    if (head || (this.number !== null && line !== undefined && line !== this.number)) {
      if (this.line.childNodes.length) this.newLine();
      if (head) this.line.before(head);
    }
    if (line !== undefined) this.number = line;
    if (head) this.lastShared = null;
    if (edge) this.line.append(edge);
  }

  write(token, kind, text) {
    const parts = text.split("\n");
    parts.forEach((part, place) => {
      if (part) this.line.append(this.span(token, kind, part));
      if (place === parts.length - 1) return;
      this.line.append(this.span(token, FEED, "\n"));
      if (this.number !== null) this.number += 1;
      this.newLine();
    });
  }

  span(token, kind, text) {
    const flags = this.tokens[token][1];
    const shared = flags & (BEFORE | AFTER);
    const isSpecial = flags & SPECIAL;
    const isEdge = this.lastShared !== null && shared !== this.lastShared && !isSpecial;
    const classes = [
      isSpecial ? "special" : SYNTAX.get(kind),
      SHARED.get(shared),
      flags & MIDDLE ? "middle" : null,
      token % 2 ? "alternate" : null,
      isEdge ? "edge" : null,
    ];
    if (!isSpecial) {
      this.lastShared = shared;
      if (this.number !== null) this.line.dataset.line ??= this.number;
    }
    this.shared |= shared;
    const span = document.createElement("span");
    const names = classes.filter(Boolean).join(" ");
    if (names) span.className = names;
    span.dataset.token = token;
    span.textContent = text;
    return span;
  }

  finished() {
    this.closeLine();
    if (!this.line.childNodes.length) this.line.remove();
    return this.fragment;
  }
}

/** The code with its status line, which tells the token under the pointer or chosen by arrow keys. */
export function codeView(label, tokens, strokes, starts) {
  const status = make("p", { class: "token-status", role: "status" });
  const code = make("div", { class: "code", tabindex: 0, role: "region", "aria-label": label, "data-keep": "code" });
  code.append(drawnLines(tokens, strokes, starts));
  const texts = spelled(strokes);
  let chosen = -1;
  const hint = `${counted(tokens.length, "token")}. Point at one, or click on one and walk on with → and ←.`;
  const rest = () => (status.textContent = hint);
  const tell = (token) => (status.textContent = tokenTold(token, tokens, texts));

  const choose = (token) => {
    for (const span of code.querySelectorAll(".chosen")) span.classList.remove("chosen");
    chosen = Math.min(tokens.length - 1, Math.max(0, token));
    const spans = code.querySelectorAll(`[data-token="${chosen}"]`);
    spans.forEach((span) => span.classList.add("chosen"));
    spans[0]?.scrollIntoView({ block: "nearest" });
    tell(chosen);
  };
  code.addEventListener("pointerover", (event) => {
    const span = event.target.closest("[data-token]");
    if (span) tell(Number(span.dataset.token));
  });
  code.addEventListener("click", (event) => {
    const span = event.target.closest("[data-token]");
    if (span && window.getSelection().isCollapsed) choose(Number(span.dataset.token));
  });
  code.addEventListener("pointerleave", () => (chosen < 0 ? rest() : tell(chosen)));
  code.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !tokens.length) return;
    event.preventDefault();
    choose(chosen < 0 ? 0 : chosen + step);
  });
  rest();
  return { code, element: make("div", { class: "code-frame" }, code, status) };
}

function spelled(strokes) {
  const texts = new Map();
  for (const [token, , text] of strokes) texts.set(token, (texts.get(token) ?? "") + text);
  return texts;
}

function tokenTold(token, tokens, texts) {
  const [id, flags] = tokens[token];
  const told = [`Token ${count(token)} of ${count(tokens.length)}`, `id ${id}`];
  const text = texts.get(token);
  if (flags & SPECIAL) told.push(`special: ${text ?? ""}`);
  else told.push(text ? JSON.stringify(text) : "part of the character before");
  if (flags & BEFORE) told.push("also in the window before");
  if (flags & AFTER) told.push("also in the window after");
  if (flags & MIDDLE) told.push("in the middle, which the model fills in");
  return told.join(" · ");
}

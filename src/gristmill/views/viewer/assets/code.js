// Tokenized text as lines of code, with syntax colors, token boundaries and overlaps with neighboring windows.

import { make } from "./dom.js";
import { count, counted } from "./format.js";

export const SPECIAL = 1;
const [BEFORE, AFTER] = [2, 4];
export const MIDDLE = 8;

const FEED = "feed";
// Only these kinds become class names, so that a dataset cannot inject other class names.
const KINDS = ["keyword", "name", "builtin", "string", "comment", "number", "operator", "odd", FEED];
const SYNTAX = new Map(KINDS.map((kind) => [kind, `syntax-${kind}`]));
const SHARED = new Map([[BEFORE, "before"], [AFTER, "after"], [BEFORE | AFTER, "both"]]);
const SHARED_MARKS = new Map([[BEFORE, "↑"], [AFTER, "↓"], [BEFORE | AFTER, "↕"]]);
const LINES_PER_BLOCK = 60;

/**
 * Returns the lines as elements. `starts` has an entry for each token that begins a window or follows a gap:
 * {line: line number or null, head: element above the line, edge: element in the gutter}.
 */
function drawLines(tokens, strokes, starts) {
  const builder = new LineBuilder(tokens);
  let last = -1;
  for (const [token, kind, text] of strokes) {
    for (let passed = last + 1; passed <= token; passed++) {
      if (starts.has(passed)) builder.start(starts.get(passed));
    }
    last = Math.max(last, token);
    builder.write(token, kind, text);
  }
  return builder.finish();
}

/** Builds the line elements from strokes of text. */
class LineBuilder {
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
    parts.forEach((part, index) => {
      if (part) this.line.append(this.span(token, kind, part));
      if (index === parts.length - 1) return;
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

  finish() {
    this.closeLine();
    if (!this.line.childNodes.length) this.line.remove();
    return this.fragment;
  }
}

/** Returns the code, and a status line for the token that is under the pointer or selected with arrow keys. */
export function codeView(label, tokens, strokes, starts) {
  const status = make("p", { class: "token-status", role: "status" });
  const code = make("div", { class: "code", tabindex: 0, role: "region", "aria-label": label, "data-keep": "code" });
  code.append(drawLines(tokens, strokes, starts));
  const texts = tokenTexts(strokes);
  let selected = -1;
  const advice = "Hover over a token to see its id, or click a token and go to the next or previous one with → and ←.";
  const hint = `${counted(tokens.length, "token")}. ${advice}`;
  const showHint = () => (status.textContent = hint);
  const describe = (token) => (status.textContent = tokenText(token, tokens, texts));

  const select = (token) => {
    for (const span of code.querySelectorAll(".selected")) span.classList.remove("selected");
    selected = Math.min(tokens.length - 1, Math.max(0, token));
    const spans = code.querySelectorAll(`[data-token="${selected}"]`);
    spans.forEach((span) => span.classList.add("selected"));
    spans[0]?.scrollIntoView({ block: "nearest" });
    describe(selected);
  };
  code.addEventListener("pointerover", (event) => {
    const span = event.target.closest("[data-token]");
    if (span) describe(Number(span.dataset.token));
  });
  code.addEventListener("click", (event) => {
    const span = event.target.closest("[data-token]");
    if (span && window.getSelection().isCollapsed) select(Number(span.dataset.token));
  });
  code.addEventListener("pointerleave", () => (selected < 0 ? showHint() : describe(selected)));
  code.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || !tokens.length) return;
    event.preventDefault();
    select(selected < 0 ? 0 : selected + step);
  });
  showHint();
  return { code, element: make("div", { class: "code-frame" }, code, status) };
}

/** Joins the strokes of each token. */
function tokenTexts(strokes) {
  const texts = new Map();
  for (const [token, , text] of strokes) texts.set(token, (texts.get(token) ?? "") + text);
  return texts;
}

function tokenText(token, tokens, texts) {
  const [id, flags] = tokens[token];
  const parts = [`Token index ${count(token)} of ${counted(tokens.length, "token")}`, `id ${id}`];
  const text = texts.get(token);
  if (flags & SPECIAL) parts.push(`special: ${text ?? ""}`);
  else parts.push(text ? JSON.stringify(text) : "rest of a character that starts in an earlier token");
  if (flags & BEFORE) parts.push("also in the previous window");
  if (flags & AFTER) parts.push("also in the next window");
  if (flags & MIDDLE) parts.push("in the middle, which the model fills in");
  return parts.join(" · ");
}

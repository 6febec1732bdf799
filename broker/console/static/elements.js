// Elements, made without any HTML text: what a client has named can only become text. All texts and attributes of the
// page pass through here, and show what a reader could not see: see `visible`.

const SVG = "http://www.w3.org/2000/svg";

// Control characters, those that change the direction of a text or have no width, and what is no character. A name with
// them could look like another one, or reorder the text beside it.
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// Returns a text with escapes in place of what cannot be seen (\x1b, \u202e), as in the log and the command line.
export function visible(text) {
  return String(text ?? "").replace(INVISIBLE, (character) => {
    if (character in SHORT) return SHORT[character];
    const code = character.codePointAt(0).toString(16);
    if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
    return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  });
}

// A child is an element or a text. Nothing is ever parsed.
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, visible(value));
  }
  made.append(...children.map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

// Sets a text or an attribute only if it has changed, so that a screen reader and a selection are left in peace.
export function setText(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

export function setAttribute(node, name, value) {
  const shown = visible(value);
  if (node.getAttribute(name) !== shown) node.setAttribute(name, shown);
}

export function setClass(node, name) {
  if (node.getAttribute("class") !== name) node.setAttribute("class", name);
}

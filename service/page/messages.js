// What the page tells its user: a status line for what passes, and messages that stay until dismissed.

import { $, element } from "./state.js";

const MOST = 30;

// `again` is what "Try again" does.
export function say(text, isBad = false, again = null) {
  const button = again ? [" ", element("button", { type: "button", textContent: "Try again", onclick: again })] : [];
  $("status").replaceChildren(text, ...button);
  $("status").className = isBad ? "warning" : "";
}

// Add a message about a file or a step; `action` is {label, run}. What went wrong stands first, the newest above.
export function note(subject, text, { isBad = true, action = null } = {}) {
  const list = $("messages");
  for (const item of [...list.children]) if (item.dataset.subject === subject && item.dataset.text === text) item.remove();
  const item = element("li", { className: isBad ? "warning" : "" });
  Object.assign(item.dataset, { subject, text });
  const close = element("button", { type: "button", textContent: "×", className: "plain", ariaLabel: `Dismiss: ${subject}` });
  const drop = () => {
    const beside = item.nextElementSibling ?? item.previousElementSibling;
    item.remove();
    showClear();
    beside?.querySelector(".plain").focus();
  };
  close.onclick = drop;
  item.append(element("span", {}, element("strong", { textContent: `${subject}: ` }), text));
  if (action) {
    const button = element("button", { type: "button", textContent: action.label });
    button.onclick = () => { drop(); action.run(); };
    item.append(button);
  }
  item.append(close);
  list.insertBefore(item, isBad ? list.firstChild : list.querySelector("li:not(.warning)"));
  while (list.children.length > MOST) list.lastChild.remove();
  list.scrollTop = 0;
  showClear();
}

// Remove the messages about files that are gone, or about a step that is taken again.
export function forget(...subjects) {
  for (const item of [...$("messages").children]) if (subjects.includes(item.dataset.subject)) item.remove();
  showClear();
}

function showClear() {
  $("messages-head").hidden = $("messages").children.length < 2;
}

export function clearMessages() {
  $("messages").replaceChildren();
  showClear();
}

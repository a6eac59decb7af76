// Files that the page saves.

import { element } from "../state.js";

export function saveFile(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\p{L}\p{N}._+-]+/gu, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const saveJson = (document, name) => saveFile(new Blob([JSON.stringify(document)], { type: "application/json" }), name);

// Binary form of requests.

// Encode a request as the parts of a safetensors file: arrays become tensors named by their position, the rest JSON
// text in the header.
export function encoded(request) {
  const header = { __metadata__: {} }, parts = [];
  let place = 0;
  const withoutArrays = (value, name) => {
    if (value instanceof Float32Array) {
      header[name] = { dtype: "F32", shape: [value.length], data_offsets: [place, place + value.byteLength] };
      place += value.byteLength;
      parts.push(value);
      return undefined;
    }
    const inner = (key) => (name ? `${name}.${key}` : key);
    if (Array.isArray(value)) return value.map((element, i) => withoutArrays(element, inner(i)));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, withoutArrays(member, inner(key))]));
  };
  header.__metadata__.request = JSON.stringify(withoutArrays(request, ""));
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new DataView(new ArrayBuffer(8)), padding = " ".repeat(-text.length & 7);
  length.setBigUint64(0, BigInt(text.length + padding.length), true);
  return [length, text, padding, ...parts];
}

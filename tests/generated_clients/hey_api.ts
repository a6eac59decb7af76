import { client } from "./hey_api/client.gen";
import { refine } from "./hey_api/sdk.gen";
import type { DesignBody } from "./hey_api/types.gen";

declare const process: { argv: string[] };
const [address, body] = [process.argv[2], JSON.parse(process.argv[3]) as DesignBody];
client.setConfig({ baseUrl: address });
const { data } = await refine({ body, query: { k: 1 }, throwOnError: true });
if (typeof data === "string" || data instanceof Blob) throw new Error("not the JSON that was accepted");
console.log(JSON.stringify(data.fir));

import { refine } from "./orval/client";
import type { DesignBody } from "./orval/client";

declare const process: { argv: string[] };
const answer = await refine(JSON.parse(process.argv[3]) as DesignBody, { k: 1 });
if (answer.status !== 200) throw new Error(`status ${answer.status}`);
console.log(JSON.stringify(answer.data.fir));

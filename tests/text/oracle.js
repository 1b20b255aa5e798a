// Ids of the reference: node oracle.js MODULES TOKENIZER_JSON. Reads one JSON string and writes one JSON
// array per line.
const path = require("path");
const readline = require("readline");
const { Tokenizer } = require(path.join(process.argv[2], "node_modules", "tokenizers"));

async function main() {
  const tokenizer = Tokenizer.fromFile(process.argv[3]);
  const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
  let batch = [];
  const flush = async () => {
    // No special tokens: those of a post-processor are not part of the comparison.
    const encodings = await tokenizer.encodeBatch(batch, { addSpecialTokens: false });
    process.stdout.write(encodings.map((encoding) => JSON.stringify(encoding.getIds()) + "\n").join(""));
    batch = [];
  };
  for await (const line of lines) {
    batch.push(JSON.parse(line));
    if (batch.length === 500) await flush();
  }
  if (batch.length > 0) await flush();
}
main();

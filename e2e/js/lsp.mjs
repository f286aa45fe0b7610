// Two editors at once talk to a language server at a TCP address: node lsp.mjs HOST:PORT FOLDER. The folder has the Go files
// a.go and b.go, each with a function of that name in capitals. Prints what each has got.
import net from 'node:net';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import * as rpc from 'vscode-jsonrpc/node';

const [address, folder] = process.argv.slice(2);
const [host, port] = address.split(':');

async function edit(file) {
  const socket = net.connect(Number(port), host);
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  const connection = rpc.createMessageConnection(new rpc.StreamMessageReader(socket), new rpc.StreamMessageWriter(socket));
  const asked = {};
  const ask = (method, answer) => connection.onRequest(method, (params) => {
    asked[method] = (asked[method] ?? 0) + 1;
    return answer(params);
  });
  ask('workspace/configuration', (params) => params.items.map(() => null));
  ask('client/registerCapability', () => null);
  ask('window/workDoneProgress/create', () => null);
  const diagnosed = new Set();
  connection.onNotification('textDocument/publishDiagnostics', (params) => diagnosed.add(path.basename(params.uri)));
  connection.listen();

  const uri = pathToFileURL(path.join(folder, file)).href;
  const initialized = await connection.sendRequest('initialize', {
    processId: process.pid, rootUri: pathToFileURL(folder).href,
    workspaceFolders: [{ uri: pathToFileURL(folder).href, name: file }],
    capabilities: {
      workspace: { configuration: true, didChangeConfiguration: { dynamicRegistration: true } },
      window: { workDoneProgress: true },
      textDocument: { hover: { contentFormat: ['plaintext'] }, documentSymbol: { hierarchicalDocumentSymbolSupport: true } },
    },
  });
  await connection.sendNotification('initialized', {});
  const text = fs.readFileSync(path.join(folder, file), 'utf8');
  await connection.sendNotification('textDocument/didOpen', { textDocument: { uri, languageId: 'go', version: 1, text } });
  const name = file[0].toUpperCase();
  const line = text.split('\n').findIndex((l) => l.startsWith(`func ${name}`));
  const at = { textDocument: { uri }, position: { line, character: 'func '.length } };
  const [hover, symbols, unknown] = await Promise.all([
    connection.sendRequest('textDocument/hover', at),
    connection.sendRequest('textDocument/documentSymbol', { textDocument: { uri } }),
    connection.sendRequest('no/such', {}).catch((err) => err.code),
  ]);
  await connection.sendRequest('shutdown');
  const ended = new Promise((resolve) => socket.once('close', resolve));
  await connection.sendNotification('exit');
  await ended;
  return {
    server: initialized.serverInfo.name, hover: hover.contents.value, symbols: symbols.map((s) => s.name), unknown,
    asked: Object.keys(asked).sort(), diagnosed: [...diagnosed].sort(),
  };
}

const [a, b] = await Promise.all([edit('a.go'), edit('b.go')]);
console.log(JSON.stringify({ a, b }));

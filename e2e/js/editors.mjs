// Three editors share one language server: node editors.mjs SOCKET IDMUX PID SERVER LANGUAGE FOLDER FILE…
// The first two connect to the socket, the third starts idmux connect, as an editor does that can only start a command. SERVER
// is a word of the server's command line, which ends in the middle. Each of the files has one mistake, "wrong" in the place of
// "right", and a function that is called as the file. Prints what each editor has seen.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import * as rpc from 'vscode-jsonrpc/node';

const [socketPath, idmux, pid, server, languageId, folder, ...files] = process.argv.slice(2);
const uriOf = (file) => pathToFileURL(path.join(folder, file)).href;

class Editor {
  constructor(file) {
    this.file = file;
    this.uri = uriOf(file);
    this.text = fs.readFileSync(path.join(folder, file), 'utf8');
    this.version = 1;
    this.asked = {};
    this.diagnostics = new Map(); // the latest, by file
    this.work = {}; // kinds of progress, by token
    this.told = [];
    this.waiting = [];
  }

  async connect(command) {
    let reader, writer;
    if (command) {
      this.child = spawn(command, ['connect', '--framing', 'header', `unix://${socketPath}?framing=header`], { stdio: ['pipe', 'pipe', 'inherit'] });
      this.ended = new Promise((resolve) => this.child.once('exit', resolve));
      [reader, writer] = [new rpc.StreamMessageReader(this.child.stdout), new rpc.StreamMessageWriter(this.child.stdin)];
    } else {
      const socket = net.connect(socketPath);
      await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
      this.ended = new Promise((resolve) => socket.once('close', resolve));
      [reader, writer] = [new rpc.StreamMessageReader(socket), new rpc.StreamMessageWriter(socket)];
    }
    this.rpc = rpc.createMessageConnection(reader, writer);
    const answer = (method, result) => this.rpc.onRequest(method, (params) => {
      this.asked[method] = (this.asked[method] ?? 0) + 1;
      return result(params);
    });
    answer('workspace/configuration', (params) => params.items.map(() => null));
    answer('client/registerCapability', () => null);
    answer('client/unregisterCapability', () => null);
    answer('window/workDoneProgress/create', ({ token }) => { this.work[token] = []; return null; });
    this.rpc.onNotification('$/progress', ({ token, value }) => this.note(() => this.work[token]?.push(value.kind)));
    this.rpc.onNotification('textDocument/publishDiagnostics', (p) => this.note(() => this.diagnostics.set(path.basename(p.uri), p.diagnostics.length)));
    this.rpc.onNotification('window/showMessage', (p) => this.note(() => this.told.push(p.message)));
    this.rpc.listen();
  }

  // note remembers something and wakes those who wait for it.
  note(what) {
    what();
    this.waiting = this.waiting.filter(({ good, resolve }) => !good() || resolve());
  }

  until(what, good) {
    if (good()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${this.file}: waited for ${what}; ${JSON.stringify([...this.diagnostics])}`)), 60_000);
      this.waiting.push({ good, resolve: () => { clearTimeout(late); resolve(); } });
    });
  }

  async begin() {
    const result = await this.rpc.sendRequest('initialize', {
      processId: process.pid, rootUri: pathToFileURL(folder).href,
      workspaceFolders: [{ uri: pathToFileURL(folder).href, name: 'shared' }],
      capabilities: {
        general: { positionEncodings: ['utf-16', 'utf-8'] },
        workspace: { configuration: true, workspaceFolders: true, didChangeConfiguration: { dynamicRegistration: true } },
        window: { workDoneProgress: true },
        textDocument: { hover: { contentFormat: ['plaintext'] }, publishDiagnostics: { versionSupport: true } },
      },
    });
    await this.rpc.sendNotification('initialized', {});
    return result;
  }

  open(uri = this.uri, text = this.text) {
    return this.rpc.sendNotification('textDocument/didOpen', { textDocument: { uri, languageId, version: this.version, text } });
  }

  // replace changes the last occurrence of a word by an incremental edit.
  replace(word, by) {
    const at = this.text.lastIndexOf(word);
    const before = this.text.slice(0, at).split('\n');
    const start = { line: before.length - 1, character: before.at(-1).length };
    this.text = this.text.slice(0, at) + by + this.text.slice(at + word.length);
    return this.rpc.sendNotification('textDocument/didChange', {
      textDocument: { uri: this.uri, version: ++this.version },
      contentChanges: [{ range: { start, end: { ...start, character: start.character + word.length } }, text: by }],
    });
  }

  // at is the place of the file's function.
  at() {
    const name = `func ${this.file[0].toUpperCase()}`;
    const lines = this.text.split('\n');
    const line = lines.findIndex((l) => l.startsWith(name) || l.startsWith(`export ${name.replace('func', 'function')}`));
    return { textDocument: { uri: this.uri }, position: { line, character: lines[line].indexOf(`${name.at(-1)}(`) } };
  }

  async hover() {
    const { contents } = await this.rpc.sendRequest('textDocument/hover', this.at());
    return (Array.isArray(contents) ? contents : [contents]).map((c) => c.value ?? c).join(' ');
  }

  // complete asks what can stand in the place of the mistake.
  async complete() {
    const before = this.text.slice(0, this.text.indexOf('return ') + 'return '.length).split('\n');
    const list = await this.rpc.sendRequest('textDocument/completion', {
      textDocument: { uri: this.uri }, position: { line: before.length - 1, character: before.at(-1).length },
    });
    return (list?.items ?? list ?? []).length > 0;
  }

  // cancel asks for something and takes it back at once; some answer all the same.
  async cancel() {
    for (let n = 0; n < 20; n++) {
      const source = new rpc.CancellationTokenSource();
      const asked = this.rpc.sendRequest('workspace/symbol', { query: 'a' }, source.token);
      source.cancel();
      const code = await asked.then(() => 0, (err) => err.code);
      if (code !== 0) return code;
    }
    return 0;
  }

  async end() {
    await this.rpc.sendRequest('shutdown');
    await this.rpc.sendNotification('exit');
    return this.ended; // the exit code, of a command
  }
}

// serverPID finds the language server among the processes below idmux.
function serverPID(parent) {
  for (const task of fs.readdirSync(`/proc/${parent}/task`)) {
    for (const child of fs.readFileSync(`/proc/${parent}/task/${task}/children`, 'utf8').trim().split(' ').filter(Boolean)) {
      if (fs.readFileSync(`/proc/${child}/cmdline`, 'utf8').includes(server)) return Number(child);
      const below = serverPID(child);
      if (below) return below;
    }
  }
  return 0;
}

const editors = files.map((file) => new Editor(file));
const [a, b, c] = editors;
const all = (what) => Promise.all(editors.map(what));
const out = {};

await all((e) => e.connect(e === c ? idmux : undefined));
out.servers = (await all((e) => e.begin())).map((r) => r.serverInfo?.name ?? 'nameless');
await all((e) => e.open());
await all((e) => e.until('its mistake', () => e.diagnostics.get(e.file) > 0));
out.hovers = await all((e) => e.hover());
out.completed = await all((e) => e.complete());
out.cancelled = await all((e) => e.cancel());
out.unknown = await all((e) => e.rpc.sendRequest('no/such', {}).catch((err) => err.code));

await all((e) => e.replace('wrong', 'right'));
await all((e) => e.until('no mistake', () => e.diagnostics.get(e.file) === 0));
await all((e) => e.replace('right', 'wrong'));
await all((e) => e.until('its mistake again', () => e.diagnostics.get(e.file) > 0));
out.diagnosed = editors.map((e) => [...e.diagnostics.keys()].sort());

// Two have the first file open. The second is given what is known of it; the third has another text, and is told so.
await b.open(a.uri, a.text);
await b.until('what is known of the first file', () => b.diagnostics.get(a.file) > 0);
await c.open(a.uri, a.text + '\n\n');
await c.until('a message', () => c.told.some((text) => text.includes('different text')));
out.differs = await c.rpc.sendRequest('textDocument/hover', a.at()).catch((err) => err.code);

// One editor ends, and the others go on.
await a.end();
out.after = await Promise.all([b, c].map((e) => e.hover()));

// The server ends in the middle. What is in flight is answered, and the next server has what is open.
const flying = Array.from({ length: 20 }, () => b.rpc.sendRequest('workspace/symbol', { query: 'b' }).then(() => 0, (err) => err.code));
process.kill(serverPID(pid), 'SIGKILL');
out.flying = [...new Set(await Promise.all(flying))].sort();
for (const e of [b, c]) e.diagnostics.clear();
await b.replace('wrong', 'right');
for (const e of [b, c]) {
  for (;;) { // until the next one is there
    const text = await e.hover().catch(() => '');
    if (text) { (out.back ??= []).push(text); break; }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
await b.until('no mistake after the restart', () => b.diagnostics.get(b.file) === 0);
await c.until('its mistake after the restart', () => c.diagnostics.get(c.file) > 0);
await c.replace('wrong', 'right');
await c.until('no mistake after an edit', () => c.diagnostics.get(c.file) === 0);
out.exit = (await Promise.all([b, c].map((e) => e.end())))[1];

out.asked = editors.map((e) => Object.keys(e.asked).sort());
out.work = editors.map((e) => Object.values(e.work).some((kinds) => kinds[0] === 'begin' && kinds.at(-1) === 'end'));
out.unfinished = editors.map((e) => Object.values(e.work).filter((kinds) => kinds.length > 0 && kinds.at(-1) !== 'end').length);
console.log(JSON.stringify(out));

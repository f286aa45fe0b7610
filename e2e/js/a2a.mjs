// Two clients of an A2A agent, at the URL that is given, at once: messages, streams, and a task that both follow and one
// cancels. What they saw is printed with names in the place of what agents draw at random, and without times.
import { AgentCard, SendMessageRequest, StreamResponse, Task } from '@a2a-js/sdk';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';

const base = process.argv[2];
const legacyCompat = { enabled: true }; // the agent may speak version 0.3

class Follower {
  constructor(who) {
    this.who = who;
    this.lines = [];
    this.drawn = new Map();
  }

  print(text) {
    this.lines.push(`${this.who} ${text}`);
  }

  // shown is a value without what differs from run to run.
  shown(value) {
    return JSON.stringify(value, (key, v) => {
      if (key === 'timestamp' || key === 'messageId') return undefined;
      if (typeof v !== 'string' || !/^[0-9a-f-]{36}$/.test(v)) return v;
      if (!this.drawn.has(v)) this.drawn.set(v, `id-${this.drawn.size}`);
      return this.drawn.get(v);
    });
  }

  // connect reads the agent's card, and notes from then on what is sent where it leads.
  async connect() {
    const noted = async (url, init) => {
      const { id, method } = JSON.parse(init.body);
      this.print(`> ${method} ${id} ${new URL(url).origin === new URL(base).origin ? 'to where the card was' : url}`);
      return fetch(url, init);
    };
    const factory = new ClientFactory({
      transports: [new JsonRpcTransportFactory({ fetchImpl: noted, legacyCompat })],
      cardResolver: new DefaultAgentCardResolver({ legacyCompat }),
    });
    this.client = await factory.createFromUrl(base);
  }

  async fails(what, call) {
    try {
      await call();
      this.print(`${what}: worked`);
    } catch (e) {
      this.print(`${what}: ${e.constructor.name}`);
    }
  }

  // work is what each does by itself.
  async work() {
    const c = this.client;
    this.print(`is told ${this.shown(await c.sendMessage(message(`say ${this.who}`)))}`);
    const task = await c.sendMessage(message(`one two ${this.who}`));
    this.print(`has ${this.shown(Task.toJSON(task))}`);
    this.print(`has again ${this.shown(Task.toJSON(await c.getTask({ tenant: '', id: task.id })))}`);
    for await (const event of c.sendMessageStream(message(`three four ${this.who}`))) {
      this.print(`sees ${this.shown(StreamResponse.toJSON(event))}`);
    }
    await this.fails('cancel, too late', () => c.cancelTask({ tenant: '', id: task.id }));
    await this.fails('no such task', () => c.getTask({ tenant: '', id: '1' }));
    const card = AgentCard.toJSON(await c.getAgentCard());
    this.print(`finds ${card.supportedInterfaces.map((i) => new URL(i.url).host === new URL(base).host)}`);
  }

  // follow prints a task's states until the stream ends. Its promise of the first is for those who wait for that.
  follow(events) {
    const begun = Promise.withResolvers();
    const done = (async () => {
      for await (const event of events) {
        const { task, statusUpdate } = StreamResponse.toJSON(event);
        this.print(`follows ${task?.status.state ?? statusUpdate.status.state}`);
        begun.resolve(task?.id ?? statusUpdate.taskId);
      }
      this.print('follows to the end');
    })();
    return { begun: begun.promise, done };
  }
}

Promise.withResolvers ??= () => {
  const all = {};
  all.promise = new Promise((resolve, reject) => Object.assign(all, { resolve, reject }));
  return all;
};

const message = (text) => SendMessageRequest.fromJSON({
  message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: [{ text }] },
});

const a = new Follower('a');
const b = new Follower('b');
await Promise.all([a, b].map((f) => f.connect().then(() => f.work())));

const first = a.follow(a.client.sendMessageStream(message('wait')));
const id = await first.begun;
const second = b.follow(b.client.resubscribeTask({ tenant: '', id }));
await second.begun;
const cancelled = await b.client.cancelTask({ tenant: '', id });
await Promise.all([first.done, second.done]);
b.print(`has cancelled: ${Task.toJSON(cancelled).status.state}`);
console.log([...a.lines, ...b.lines].join('\n'));

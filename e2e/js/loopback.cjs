// Preloaded, keeps a server that has no option for it from listening on other than 127.0.0.1.
const net = require('node:net');
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return Number.isInteger(Number(port)) && typeof rest[0] !== 'string'
    ? listen.call(this, Number(port), '127.0.0.1', ...rest)
    : listen.call(this, port, ...rest);
};

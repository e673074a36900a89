// Preloaded before servers that offer no choice of address: a port without a host is bound to loopback.
import { Server } from 'node:net';

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
    const bare = ['number', 'string'].includes(typeof port) && Number.isInteger(Number(port)) && typeof rest[0] !== 'string';
    return bare ? listen.call(this, Number(port), '127.0.0.1', ...rest) : listen.call(this, port, ...rest);
};

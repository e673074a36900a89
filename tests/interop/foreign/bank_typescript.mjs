// The bank of examples/policy, served by the official TypeScript SDK over stdio.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = value => ({ content: [{ type: 'text', text: value }] });

serveStdio(() => {
    const server = new McpServer({ name: 'bank', version: '1.0' });
    const inputSchema = z.object({ to: z.string(), amount: z.number(), currency: z.string().default('EUR') });
    server.registerTool('pay', { description: 'Pay somebody.', inputSchema },
        async ({ to, amount, currency }) => text(`paid ${amount} ${currency} to ${to}`));
    server.registerTool('balance', { description: 'What is there.', annotations: { readOnlyHint: true } },
        async () => text('1,000 EUR'));
    return server;
});

// A shop behind express-idempotency. Its first line says on which port.
const express = require('express');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');

const app = express();
app.use(express.json());
app.use(idempotency());

let orders = 0;
let broken = 0;
app.get('/orders', (req, res) => res.json({ orders }));
app.post('/broken/:times', (req, res) => {
  broken = Number(req.params.times);
  res.sendStatus(204);
});
app.post('/orders', (req, res) => {
  if (getSharedIdempotencyService().isHit(req)) return; // answered by the middleware
  if (broken-- > 0) return res.status(503).send('out of order');
  setTimeout(() => {
    orders++;
    res.status(201).json({ order: orders, id: req.body.id });
  }, req.body.slow || 0);
});

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit()); // ends with the test

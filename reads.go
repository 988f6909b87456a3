package idem

// serveRead sends a GET or its kin: with retries and the breaker, but without key or
// entry, for nothing can happen by it.
func (c *Client) serveRead(in *intent) outcome {
	p := c.newPass(in.op, in.ctx)
	defer p.end()
	p.dialect, p.live, p.wire, p.account = in.dialect, in.live, in.wire, in.account
	p.reads = true
	judge := func(t tried) verdict { return judge(p.dialect, facts{request: p.wire, read: true}, t) }
	for {
		if err := endOf(p.ctx); err != nil {
			return p.readEnded(in, err)
		}
		report, err := p.admit(p.fits)
		if err != nil {
			return p.readEnded(in, err)
		}
		t, v := p.try(&p, judge, report)
		if t.stopped != nil {
			return p.readEnded(in, t.stopped)
		}
		c.tracer.attempt(p.info(t, v))
		switch v.then {
		case stepSettle:
			o := p.outcome(in, nil)
			o.fate, o.final = v.fate, true
			return o
		case stepFail:
			return p.readEnded(in, t.err)
		}
		if err := p.readPause(v); err != nil {
			return p.readEnded(in, err)
		}
	}
}

func (p *pass) readPause(v verdict) error {
	if err := endOf(p.ctx); err != nil {
		return err
	}
	wait, err := p.nextPause(v, p.fits)
	if err != nil {
		return err
	}
	p.client.tracer.waiting("", wait)
	return p.sleep(wait)
}

// readEnded is the outcome of a read without a final answer. A refusal that outlasted
// the retries is an answer all the same.
func (p *pass) readEnded(in *intent, why error) outcome {
	o := p.outcome(in, p.explain(why))
	o.fate = FateNotDone
	if p.last {
		o.fate = p.verdict.fate
		o.final = p.gaveUp && p.answer.status < 500 && p.answer.cut == nil
	}
	return o
}

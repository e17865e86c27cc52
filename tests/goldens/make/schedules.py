"""schedules.json: learning rates of transformers.optimization."""

from tools import save_json

import torch


def family_schedules(out, steps=100, base_lr=1e-3):
    from transformers import optimization as O

    def rows(make):
        opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base_lr)
        sched = make(opt)
        values = []
        for _ in range(steps):
            values.append(opt.param_groups[0]["lr"])
            opt.step()
            sched.step()
        return values
    cases = [
        ("constant", dict(), lambda o: O.get_constant_schedule(o)),
        ("constant_with_warmup", dict(warmup=10), lambda o: O.get_constant_schedule_with_warmup(o, 10)),
        ("linear", dict(warmup=0), lambda o: O.get_linear_schedule_with_warmup(o, 0, steps)),
        ("linear", dict(warmup=10), lambda o: O.get_linear_schedule_with_warmup(o, 10, steps)),
        ("cosine", dict(warmup=10), lambda o: O.get_cosine_schedule_with_warmup(o, 10, steps)),
        ("cosine", dict(warmup=0), lambda o: O.get_cosine_schedule_with_warmup(o, 0, steps)),
        ("cosine", dict(warmup=10, total=60, about="runs past its end: step 60 onwards follows the formula"),
         lambda o: O.get_cosine_schedule_with_warmup(o, 10, 60)),
        ("cosine_with_restarts", dict(warmup=10, num_cycles=3),
         lambda o: O.get_cosine_with_hard_restarts_schedule_with_warmup(o, 10, steps, 3)),
        ("cosine_with_min_lr", dict(warmup=10, min_lr=1e-4),
         lambda o: O.get_cosine_with_min_lr_schedule_with_warmup(o, 10, steps, min_lr=1e-4)),
        ("cosine_with_min_lr", dict(warmup=5, min_lr_rate=0.3),
         lambda o: O.get_cosine_with_min_lr_schedule_with_warmup(o, 5, steps, min_lr_rate=0.3)),
        ("polynomial", dict(warmup=10, lr_end=1e-5, power=2.0),
         lambda o: O.get_polynomial_decay_schedule_with_warmup(o, 10, steps, lr_end=1e-5, power=2.0)),
        ("polynomial", dict(warmup=0, lr_end=1e-7, power=1.0, total=80),
         lambda o: O.get_polynomial_decay_schedule_with_warmup(o, 0, 80, lr_end=1e-7, power=1.0)),
        ("inverse_sqrt", dict(warmup=10), lambda o: O.get_inverse_sqrt_schedule(o, 10)),
    ]
    for decay in ("linear", "cosine", "1-sqrt"):
        cases.append(("warmup_stable_decay", dict(warmup=10, decay=30, stable=60, decay_type=decay, min_lr_ratio=0.0),
                      lambda o, d=decay: O.get_wsd_schedule(o, 10, 30, num_stable_steps=60, decay_type=d)))
    cases.append(("warmup_stable_decay", dict(warmup=5, decay=20, stable=50, decay_type="linear", min_lr_ratio=0.1,
                                              about="25 steps past its end"),
                  lambda o: O.get_wsd_schedule(o, 5, 20, num_stable_steps=50, decay_type="linear", min_lr_ratio=0.1)))
    save_json(out / "schedules.json", dict(
        about="lr[i] is the rate that optimizer step i (from 0) uses, that is after i calls of scheduler.step(); "
              "total is the planned number of steps where the kind has one",
        base_lr=base_lr, steps=steps,
        cases=[dict(dict(kind=kind, total=steps), **params, lr=rows(make)) for kind, params, make in cases]))
    print("schedules", len(cases), flush=True)

package settings

import (
	"errors"
	"time"
)

// Plans configures how approved plans are carried out.
type Plans struct {
	Queue    string   `name:"queue" env:"WEIR_PLAN_QUEUE" default:"weir_plan" help:"The River queue of plans."`
	Workers  Int      `name:"workers" env:"WEIR_PLAN_WORKERS" default:"20" help:"Plans that this process carries out at once."`
	Lease    Duration `name:"lease" env:"WEIR_PLAN_LEASE" default:"120s" help:"How long this process owns a plan without renewing. Each step renews it."`
	StepTime Duration `name:"step-time" env:"WEIR_PLAN_STEP_TIME" default:"120s" help:"How long one step may take."`
}

func (p *Plans) validate() error {
	return errors.Join(
		p.Workers.check("WEIR_PLAN_WORKERS", 1, 10_000),
		p.Lease.check("WEIR_PLAN_LEASE", time.Second, time.Hour),
		p.StepTime.check("WEIR_PLAN_STEP_TIME", 100*time.Millisecond, 24*time.Hour),
	)
}

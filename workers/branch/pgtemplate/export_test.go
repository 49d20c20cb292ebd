package pgtemplate

// OnStage calls f before each stage of a reset.
func (p *Provider) OnStage(f func(stage string)) { p.stage = f }

// Stages are all of them, in their order.
var Stages = []string{"connect", "lock", "tidy", "create", "mark", "evict", "swap", "commit", "drop"}

// Beside is the name of a database that a run makes.
var Beside = beside

package workerstest

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// Play plays the scenarios whose names hold one of the words, and returns the errors by scenario.
func Play[T any](ctx context.Context, cfg Config[T], words ...string) (map[string]error, error) {
	sub, err := cfg.subject()
	if err != nil {
		return nil, err
	}
	return play(ctx, sub, words)
}

// RunParts is Run, with the scenarios in parts that are played at the same time: what concerns no step, and each step.
// Every part has a subject of its own, since no two may work on one database.
func RunParts[T any](t *testing.T, config func(t *testing.T) Config[T]) {
	t.Helper()
	runParts(t, func(t *testing.T) (subject, error) { return config(t).subject() })
}

// RunChannelParts is the same of RunChannel.
func RunChannelParts(t *testing.T, config func(t *testing.T) ChannelConfig) {
	t.Helper()
	runParts(t, func(t *testing.T) (subject, error) { return config(t).subject(t.Context()) })
}

func runParts(t *testing.T, make func(t *testing.T) (subject, error)) {
	t.Helper()
	list := (&suite{subject: must(t, make)}).scenarios()
	parts := map[string]bool{}
	for _, sc := range list {
		parts[partOf(sc)] = true
	}
	for part := range parts {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s, err := newSuite(must(t, make))
			if err != nil {
				t.Fatal(err)
			}
			s.runAll(t, slices.DeleteFunc(s.scenarios(), func(sc scenario) bool { return partOf(sc) != part }))
		})
	}
}

// partOf is the step of a scenario.
func partOf(sc scenario) string {
	step, _, found := strings.Cut(sc.name, "/")
	if !found {
		return "no step"
	}
	return step
}

func must(t *testing.T, make func(t *testing.T) (subject, error)) subject {
	t.Helper()
	sub, err := make(t)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func play(ctx context.Context, sub subject, words []string) (map[string]error, error) {
	s, err := newSuite(sub)
	if err != nil {
		return nil, err
	}
	out := map[string]error{}
	for _, sc := range s.scenarios() {
		for _, w := range words {
			if strings.Contains(sc.name, w) {
				out[sc.name] = s.play(ctx, sc)
				break
			}
		}
	}
	return out, nil
}

// PlayChannel is Play for a channel.
func PlayChannel(ctx context.Context, cfg ChannelConfig, words ...string) (map[string]error, error) {
	sub, err := cfg.subject(ctx)
	if err != nil {
		return nil, err
	}
	return play(ctx, sub, words)
}

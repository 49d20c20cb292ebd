package workerstest

import (
	"context"
	"strings"
)

// Play plays the scenarios whose names hold one of the words, and returns the errors by scenario.
func Play[T any](ctx context.Context, cfg Config[T], words ...string) (map[string]error, error) {
	sub, err := cfg.subject()
	if err != nil {
		return nil, err
	}
	return play(ctx, sub, words)
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

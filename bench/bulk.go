package main

import (
	"context"
	"fmt"

	"github.com/weirqueue/weir/jobs"
)

// notifyMany enqueues n deliveries that share River jobs, a hundred each.
func notifyMany(ctx context.Context, client *jobs.Client, n int) error {
	for from := 0; from < n; from += jobs.MaxNotifyMany {
		params := make([]jobs.NotifyParams, min(jobs.MaxNotifyMany, n-from))
		for i := range params {
			params[i].Notification = jobs.Notification{
				To:      []jobs.Recipient{{Channel: "bench", Address: fmt.Sprintf("user-%d", from+i)}},
				Subject: "bench", Text: "a short text",
			}
		}
		if _, err := client.NotifyMany(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

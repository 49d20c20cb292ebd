package workers

// channelSlots keeps one channel from taking every worker of this process: where a process has several channels, each
// may use half of the workers, so a provider that hangs does not silence the others (NO-10).
//
// The doorbell names the channel, as a hint: one that names none is not held back.
type channelSlots map[string]chan struct{}

func newChannelSlots(channels []string, workers int) channelSlots {
	if len(channels) < 2 {
		return nil
	}
	slots := channelSlots{}
	for _, name := range channels {
		slots[name] = make(chan struct{}, max(workers/2, 1))
	}
	return slots
}

// take returns how to give the slot back, or false when the channel has none left.
func (s channelSlots) take(channel string) (give func(), ok bool) {
	slot := s[channel]
	if slot == nil {
		return func() {}, true
	}
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, true
	default:
		return nil, false
	}
}

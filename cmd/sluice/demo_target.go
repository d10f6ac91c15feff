package main

// startDemoTarget starts the local target with every fault, each rare.
func startDemoTarget(requestsPerSecond int) (*demoTarget, error) {
	t := newTarget(demoTargetOptions(requestsPerSecond))
	url, err := t.Start()
	if err != nil {
		return nil, err
	}
	return &demoTarget{URL: url, Stop: t.Stop, Done: func() int64 { return t.Stats().Distinct }}, nil
}

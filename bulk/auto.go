package bulk

import "github.com/sluice-project/sluice/internal/autorate"

// AutoRate finds the rate of a target whose rate is set to "auto". Stores keep it.
type AutoRate = autorate.Finder

// AutoSample is the outcome of the attempts on one target in one window.
type AutoSample = autorate.Sample

// AutoFirst is the initial rate, in attempts per second, of a target set to "auto".
const AutoFirst = autorate.First

// Package pleg relists as Kubernetes 1.36 does (pkg/kubelet/pleg/generic.go): a loop of its own calls it, no method value.
package pleg

import (
	"sync"
	"sync/atomic"
	"time"
)

// Runtime is who lists.
type Runtime interface {
	GetPods(all bool) ([]string, error)
}

// GenericPLEG has the fields of the real one that matter, in its order.
type GenericPLEG struct {
	runtime         Runtime
	eventChannel    chan string
	podRecords      map[string]*int
	relistTime      atomic.Value
	cache           *sync.Map
	stopCh          chan struct{}
	relistLock      sync.Mutex
	isRunning       bool
	runningMu       sync.Mutex
	period          time.Duration
	podsToReinspect map[string]string
}

// New makes one that lists each period.
func New(runtime Runtime, period time.Duration) *GenericPLEG {
	return &GenericPLEG{runtime: runtime, cache: &sync.Map{}, period: period, podRecords: map[string]*int{}}
}

// Start begins to relist.
func (g *GenericPLEG) Start() {
	g.runningMu.Lock()
	defer g.runningMu.Unlock()
	if g.isRunning {
		return
	}
	g.isRunning = true
	g.stopCh = make(chan struct{})
	go func() {
		for g.workerLoopIteration() {
		}
	}()
}

func (g *GenericPLEG) workerLoopIteration() bool {
	timer := time.NewTimer(g.period)
	defer timer.Stop()
	select {
	case <-g.stopCh:
		return false
	case <-timer.C:
		g.Relist()
	}
	return true
}

// Relist asks for all pods and remembers when.
func (g *GenericPLEG) Relist() {
	g.relistLock.Lock()
	defer g.relistLock.Unlock()
	began := time.Now()
	pods, err := g.runtime.GetPods(true)
	if err != nil {
		return
	}
	g.relistTime.Store(began)
	for _, pod := range pods {
		g.cache.Store(pod, began)
	}
}

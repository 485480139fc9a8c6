// A client of a container runtime, made of the library that the kubelet has. It reads one operation a line and writes
// "done" once it has ended, however the runtime answered:
//
//	connect [streaming] [traced]  new connections in place of those before: lists come as streams, requests carry a trace
//	                              context
//	version, status, pods, containers, stats, images
//	pod ID, container ID          their status
//	exec ID WORD...               runs a command in a container
//	begin ID WORD...              the same, but does not wait for its end
//	cancel                        gives up what was begun
//	book                          writes what was asked so far: method, code, count
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	client "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
)

const limit = time.Minute

// Both services of a runtime, and what was begun there.
type runtime struct {
	cri.RuntimeService
	images cri.ImageManagerService
	cancel context.CancelFunc
	ended  chan struct{}
}

func connect(socket string, words []string, book *book) *runtime {
	streaming, tracer := false, provider{book: book}
	for _, word := range words {
		streaming = streaming || word == "streaming"
		tracer.traced = tracer.traced || word == "traced"
	}
	ctx, endpoint := context.Background(), "unix://"+socket
	service, err := client.NewRemoteRuntimeService(ctx, endpoint, limit, tracer, streaming)
	try(err)
	images, err := client.NewRemoteImageService(ctx, endpoint, limit, tracer, streaming)
	try(err)
	return &runtime{RuntimeService: service, images: images}
}

func (r *runtime) close() {
	if r != nil {
		try(r.Close(context.Background()))
		try(r.images.Close(context.Background()))
	}
}

// What the runtime answers is in the book.
func (r *runtime) ask(words []string) {
	ctx := context.Background()
	switch words[0] {
	case "version":
		r.Version(ctx, "")
	case "status":
		r.Status(ctx, false)
	case "pods":
		r.ListPodSandbox(ctx, nil)
	case "containers":
		r.ListContainers(ctx, nil)
	case "stats":
		r.ListContainerStats(ctx, nil)
	case "images":
		r.images.ListImages(ctx, nil)
	case "pod":
		r.PodSandboxStatus(ctx, words[1], false)
	case "container":
		r.ContainerStatus(ctx, words[1], false)
	case "exec":
		r.ExecSync(ctx, words[1], words[2:], limit)
	case "begin":
		r.begin(words[1], words[2:])
	case "cancel":
		r.cancel()
		<-r.ended
	default:
		log.Fatalf("no such operation: %q", words)
	}
}

func (r *runtime) begin(container string, command []string) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	go func() {
		r.ExecSync(ctx, container, command, limit)
		close(r.ended)
	}()
}

func try(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	// The library tells of every error.
	klog.SetLogger(klog.Logger{})
	var book book
	var runtime *runtime
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("done") {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "connect":
			runtime.close()
			runtime = connect(os.Args[1], words[1:], &book)
		case "book":
			book.write(os.Stdout)
		default:
			runtime.ask(words)
		}
	}
}

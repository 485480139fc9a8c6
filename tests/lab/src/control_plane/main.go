// The three programs of a control plane in one, so that what they share is linked once: `control-plane kube-apiserver …`, and so on.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	root := &cobra.Command{Use: "control-plane"}
	root.AddCommand(
		apiserver.NewAPIServerCommand(),
		controllers.NewControllerManagerCommand(),
		scheduler.NewSchedulerCommand(),
	)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Command go-peer keeps PodSets as a Go operator does that was written with care for speed: controller-runtime, 16 workers, pods created and
// deleted in parallel, no events, and no second look at the world before the first writes are seen. The benchmark compares with it.
// It makes neither the operator's promise nor its conditions: it creates, deletes, and counts.
package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const (
	workers = 16
	// Requests of one set at a time.
	atATime = 32
	// What a write should have shown by then is not waited for any longer.
	patience = time.Minute
	owner    = "owner"
	manager  = "go-peer"
)

func main() {
	flag.Parse() // --kubeconfig, which controller-runtime reads
	log.SetLogger(zap.New())
	if err := run(); err != nil {
		log.Log.Error(err, "ended")
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(groupVersion, &PodSet{}, &PodSetList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // no limit of the client's own
	ours := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": manager})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: ours}},
		},
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	byOwner := func(object client.Object) []string {
		if by := metav1.GetControllerOf(object); by != nil {
			return []string{string(by.UID)}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, owner, byOwner); err != nil {
		return err
	}
	keeper := &keeper{Client: mgr.GetClient(), unseen: map[types.UID]map[types.UID]write{}}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&PodSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(keeper)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// keeper keeps the sets.
type keeper struct {
	client.Client
	mutex sync.Mutex
	// Of each set, by pod, the writes that the cache has not shown yet.
	unseen map[types.UID]map[types.UID]write
}

type write struct {
	creates bool
	at      time.Time
}

func (k *keeper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var set PodSet
	if err := k.Get(ctx, request.NamespacedName, &set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(set.Namespace), client.MatchingFields{owner: string(set.UID)}); err != nil {
		return ctrl.Result{}, err
	}
	live := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isLive(&pod) })
	if wait := k.waitsFor(set.UID, live); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	wanted := int(set.Spec.Replicas)
	if len(live) != wanted {
		return ctrl.Result{}, k.scale(ctx, &set, live, wanted)
	}
	return ctrl.Result{}, k.report(ctx, &set, live)
}

// scale creates what is missing, or deletes what is too much: what is younger, and not ready, first.
func (k *keeper) scale(ctx context.Context, set *PodSet, live []corev1.Pod, wanted int) error {
	if len(live) < wanted {
		return inParallel(wanted-len(live), func(int) error {
			pod := newPod(set)
			if err := k.Create(ctx, pod); err != nil {
				return err
			}
			k.wrote(set.UID, pod.UID, true)
			return nil
		})
	}
	slices.SortFunc(live, func(a, b corev1.Pod) int {
		if isReady(&a) != isReady(&b) {
			if isReady(&a) {
				return 1
			}
			return -1
		}
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return inParallel(len(live)-wanted, func(number int) error {
		pod := &live[number]
		err := k.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if err == nil {
			k.wrote(set.UID, pod.UID, false)
		}
		return client.IgnoreNotFound(err)
	})
}

// report writes the status if it differs.
func (k *keeper) report(ctx context.Context, set *PodSet, live []corev1.Pod) error {
	status := PodSetStatus{ObservedGeneration: set.Generation, PodNames: []string{}}
	for _, pod := range live {
		status.AvailableReplicas++
		if isReady(&pod) {
			status.ReadyReplicas++
		}
		status.PodNames = append(status.PodNames, pod.Name)
	}
	slices.Sort(status.PodNames)
	before := set.DeepCopy()
	set.Status = status
	if before.Status.equals(&status) {
		return nil
	}
	err := k.Status().Patch(ctx, set, client.MergeFrom(before))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// wrote says that the cache has still to show a write of this pod.
func (k *keeper) wrote(set, pod types.UID, creates bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.unseen[set] == nil {
		k.unseen[set] = map[types.UID]write{}
	}
	k.unseen[set][pod] = write{creates: creates, at: time.Now()}
}

// waitsFor says how long at most the cache may still lag behind own writes; 0 where it does not. An event comes before that.
func (k *keeper) waitsFor(set types.UID, live []corev1.Pod) time.Duration {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	unseen := k.unseen[set]
	there := map[types.UID]bool{}
	for i := range live {
		there[live[i].UID] = true
	}
	for pod, write := range unseen {
		if there[pod] == write.creates || time.Since(write.at) > patience {
			delete(unseen, pod)
		}
	}
	if len(unseen) > 0 {
		return patience
	}
	delete(k.unseen, set)
	return 0
}

// inParallel does it so many times, and answers the first error.
func inParallel(times int, do func(int) error) error {
	var group errgroup.Group
	group.SetLimit(atATime)
	for number := range times {
		group.Go(func() error { return do(number) })
	}
	return group.Wait()
}

func isLive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// newPod is the pod that the operator makes by default, but for its name and the last label: the benchmark's others have the same.
func newPod(set *PodSet) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    set.Name + "-pod",
			Namespace:       set.Namespace,
			Labels:          map[string]string{"app": set.Name, "version": "v0.1", "app.kubernetes.io/managed-by": manager},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, groupVersion.WithKind("PodSet"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:    "fancy-alpine",
			Image:   "quay.io/amacdona/strauss",
			Command: []string{"sleep", "3600"},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				RunAsNonRoot:             ptr.To(true),
				RunAsUser:                ptr.To[int64](65532),
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}}},
	}
}

// How each part of the control plane is called.
package main

import "sort"

func etcdFlags() []string {
	return []string{
		"--data-dir=" + data + "/etcd",
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // nothing of it is kept
		"--log-level=error",
	}
}

func apiServerDefaults(pki *pki) map[string]string {
	return map[string]string{
		"etcd-servers":                     "http://127.0.0.1:2379",
		"secure-port":                      "6443",
		"tls-cert-file":                    pki.path("server.crt"),
		"tls-private-key-file":             pki.path("server.key"),
		"client-ca-file":                   pki.path("ca.crt"),
		"service-account-issuer":           "https://kubernetes.default.svc.cluster.local",
		"service-account-key-file":         pki.path("accounts.pub"),
		"service-account-signing-key-file": pki.path("accounts.key"),
		"service-cluster-ip-range":         "10.43.0.0/16",
		"authorization-mode":               "Node,RBAC",
		"enable-admission-plugins":         "NodeRestriction",
	}
}

// followers are the parts that need the API server.
func followers(pki *pki) map[string][]string {
	admin := "--kubeconfig=" + data + "/admin.yaml"
	return map[string][]string{
		"kube-controller-manager": {
			admin,
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + pki.path("accounts.key"),
			"--root-ca-file=" + pki.path("ca.crt"),
			"--leader-elect=false",
		},
		"kube-scheduler": {admin, "--leader-elect=false"},
		"kwok":           {admin, "--config=/stages.yaml", "--manage-all-nodes=true", "--node-lease-duration-seconds=40"},
	}
}

// flags are the defaults, each of which the command line may replace, as in k3s.
func flags(defaults, replaced map[string]string) []string {
	for name, value := range replaced {
		defaults[name] = value
	}
	list := make([]string, 0, len(defaults))
	for name, value := range defaults {
		list = append(list, "--"+name+"="+value)
	}
	sort.Strings(list)
	return list
}

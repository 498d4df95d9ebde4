// Reads a trace from Jaeger's query API and prints it as a tree: `go run . http://HOST:PORT TAG=VALUE...` takes the newest trace of the
// operator with a span that has these tags. The exit code is 1 while there is none, or while spans of the API server or etcd are missing.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"
)

const service = "podset-operator"

// The part of Jaeger's answer that is used.
type answer struct{ Data []trace }

type trace struct {
	TraceID   string
	Spans     []span
	Processes map[string]struct{ ServiceName string }
}

type span struct {
	SpanID, OperationName, ProcessID string
	StartTime, Duration              int64 // microseconds
	References                       []struct{ RefType, TraceID, SpanID string }
	Tags                             []struct {
		Key   string
		Value any
	}
}

// The tags to show in the tree, in this order.
var shown = []string{
	"controller", "object.namespace", "object.name", "object.generation", "trigger", "outcome",
	"plan.live", "plan.wanted", "plan.create", "plan.delete", "plan.hold", "pods.created", "pods.deleted",
	"http.response.status_code", "otel.status_description",
}

func main() {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "http") {
		exit(2, "usage: go run . http://HOST:PORT TAG=VALUE...")
	}
	found, err := find(os.Args[1], os.Args[2:])
	if err != nil {
		exit(2, err)
	}
	if found == nil {
		exit(1, "no such trace yet")
	}
	children := found.children()
	for _, span := range found.Spans {
		if span.tag("span.kind") == "client" && found.service(span) == service && !found.reaches("etcd", span, children) {
			exit(1, "spans of the API server or etcd are missing")
		}
	}
	fmt.Println("trace", found.TraceID)
	found.printBelow(children, "", 0)
}

func exit(code int, reason any) {
	fmt.Fprintln(os.Stderr, "tree:", reason)
	os.Exit(code)
}

func find(server string, wanted []string) (*trace, error) {
	tags := map[string]string{}
	for _, pair := range wanted {
		key, value, _ := strings.Cut(pair, "=")
		tags[key] = value
	}
	encoded, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	query := url.Values{"service": {service}, "tags": {string(encoded)}, "limit": {"20"}, "lookback": {"1h"}}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(server + "/api/traces?" + query.Encode())
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Jaeger answers %s", response.Status)
	}
	var all answer
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		return nil, err
	}
	var newest *trace
	for i := range all.Data {
		all.Data[i].sort()
		if newest == nil || all.Data[i].Spans[0].StartTime > newest.Spans[0].StartTime {
			newest = &all.Data[i]
		}
	}
	return newest, nil
}

func (t *trace) sort() {
	sort.SliceStable(t.Spans, func(i, j int) bool { return t.Spans[i].StartTime < t.Spans[j].StartTime })
}

// The spans below each span, by its ID. Those with an unknown parent are under "".
func (t *trace) children() map[string][]span {
	known := map[string]bool{}
	for _, span := range t.Spans {
		known[span.SpanID] = true
	}
	children := map[string][]span{}
	for _, span := range t.Spans {
		parent := span.parent()
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], span)
	}
	return children
}

func (t *trace) service(s span) string {
	return t.Processes[s.ProcessID].ServiceName
}

func (t *trace) reaches(service string, s span, children map[string][]span) bool {
	for _, child := range children[s.SpanID] {
		if t.service(child) == service || t.reaches(service, child, children) {
			return true
		}
	}
	return false
}

func (t *trace) printBelow(children map[string][]span, parent string, depth int) {
	for _, span := range children[parent] {
		name := t.service(span) + ": " + span.OperationName
		fmt.Printf("%-96s %8.1f ms%s\n", strings.Repeat("  ", depth)+name, float64(span.Duration)/1000, span.summary())
		for _, link := range span.References {
			if link.RefType != "CHILD_OF" {
				fmt.Printf("%s  first seen in trace %s\n", strings.Repeat("  ", depth), link.TraceID)
			}
		}
		t.printBelow(children, span.SpanID, depth+1)
	}
}

func (s span) parent() string {
	for _, reference := range s.References {
		if reference.RefType == "CHILD_OF" {
			return reference.SpanID
		}
	}
	return ""
}

func (s span) tag(key string) string {
	for _, tag := range s.Tags {
		if tag.Key == key {
			return fmt.Sprint(tag.Value)
		}
	}
	return ""
}

// The tags to show, by the last part of their names.
func (s span) summary() string {
	text := ""
	for _, key := range shown {
		if value := s.tag(key); value != "" {
			text += "  " + key[strings.LastIndex(key, ".")+1:] + "=" + value
		}
	}
	return text
}

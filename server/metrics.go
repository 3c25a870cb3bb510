package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what the server tells Prometheus. Labels have few values each:
// neither names of databases nor of users, and one word for unknown methods.
type metrics struct {
	registry     *prometheus.Registry
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	inFlight     prometheus.Gauge
	waits        prometheus.Gauge
	failedLogins prometheus.Counter

	mu    sync.Mutex // guards doors
	doors map[string]Meter
	// kinds keeps what requests of one kind count to: finding it by its labels
	// costs allocations, and there are few kinds.
	kinds sync.Map // of requestKind to *requestMetrics
}

type requestKind struct {
	door, method string
	status       int
}

type requestMetrics struct {
	count   prometheus.Counter
	seconds prometheus.Observer
}

func newMetrics(more []prometheus.Collector) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "osier_http_requests_total",
			Help: "Requests answered, by door, method and status."}, []string{"door", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "osier_http_request_seconds",
			Help:    "Time from a request's header to the end of its answer; feeds that wait are among them.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}}, []string{"door"}),
		inFlight:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "osier_http_requests_in_flight", Help: "Requests being answered."}),
		waits:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "osier_http_waits", Help: "Requests that wait for changes."}),
		failedLogins: prometheus.NewCounter(prometheus.CounterOpts{Name: "osier_failed_logins_total", Help: "Wrong passwords and keys."}),
		doors:        map[string]Meter{},
	}
	m.registry.MustRegister(m.requests, m.seconds, m.inFlight, m.waits, m.failedLogins,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(more...)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func (m *metrics) observe(door, method string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch, "COPY":
	default:
		method = "other"
	}
	if status < 100 || status > 599 {
		status = 0
	}
	kind := requestKind{door, method, status}
	k, ok := m.kinds.Load(kind)
	if !ok {
		k, _ = m.kinds.LoadOrStore(kind, &requestMetrics{m.requests.WithLabelValues(door, method, strconv.Itoa(status)), m.seconds.WithLabelValues(door)})
	}
	x := k.(*requestMetrics)
	x.count.Inc()
	x.seconds.Observe(took.Seconds())
}

func (m *metrics) counter(door, name, help string) Meter {
	return m.meter("osier_"+door+"_"+name, func(n string) (Meter, prometheus.Collector) {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: n, Help: help})
		return c, c
	})
}

func (m *metrics) gauge(door, name, help string) Meter {
	return m.meter("osier_"+door+"_"+name, func(n string) (Meter, prometheus.Collector) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: n, Help: help})
		return g, g
	})
}

func (m *metrics) meter(name string, make func(string) (Meter, prometheus.Collector)) Meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.doors[name]; x != nil {
		return x
	}
	x, c := make(name)
	m.registry.MustRegister(c)
	m.doors[name] = x
	return x
}

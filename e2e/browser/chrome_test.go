package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience bounds operations that should be immediate.
const patience = 2 * time.Minute

// chrome is a browser that all tests share; each visitor has cookies of its own.
var chrome context.Context

func TestMain(m *testing.M) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		_, _ = os.Stderr.WriteString("there is no chromium: run make need-browser\n")
		os.Exit(1)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("lang", "en"),
		chromedp.WSURLReadTimeout(patience), // until it has started
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox refuses root.
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	var stop context.CancelFunc
	chrome, stop = chromedp.NewContext(allocator)
	if err := chromedp.Do(chrome); err != nil {
		_, _ = os.Stderr.WriteString("chromium does not start: " + err.Error() + "\n")
		os.Exit(1)
	}
	code := m.Run()
	stop()
	stopAllocator()
	os.Exit(code)
}

// look is how a visitor views the page: language, device, JavaScript.
type look struct {
	lang     string
	width    int64
	noScript bool
	dark     bool
}

func (l look) String() string {
	name := l.lang
	if l.width < 600 {
		name += "-phone"
	} else {
		name += "-desktop"
	}
	if l.noScript {
		name += "-noscript"
	}
	if l.dark {
		name += "-dark"
	}
	return name
}

// visitor is a browser's window, with its own cookies.
type visitor struct {
	t    *testing.T
	ctx  context.Context
	look look
	// only begins the URLs that the browser may ask for; empty: any.
	only string

	mu         sync.Mutex
	complaints []string
}

func newVisitor(t *testing.T, look look) *visitor {
	t.Helper()
	v := &visitor{t: t, look: look}
	ctx, stop := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext(), chromedp.WithListener(v.listen))
	t.Cleanup(stop)
	v.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // The window lives as long as the context of this call.
		t.Fatal(err)
	}
	v.run(
		call(log.Enable, cdp.Empty{}),
		call(network.Enable, network.EnableParams{}),
		v.screen(look.width),
		theme(look.dark),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: look.noScript}),
		call(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": look.lang}}),
	)
	t.Cleanup(v.checkComplaints)
	return v
}

// call converts a command without results to an action.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

// screen sets the width of the screen; below 600 pixels it is a phone's.
func (v *visitor) screen(width int64) chromedp.Action[chromedp.Void] {
	return call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 600,
	})
}

// theme sets the color scheme that the visitor prefers.
func theme(dark bool) chromedp.Action[chromedp.Void] {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// as changes the theme and the width of the open page.
func (v *visitor) as(look look) {
	v.t.Helper()
	v.look = look
	v.run(v.screen(look.width), theme(look.dark))
}

// listen records the browser's complaints: errors of scripts, and violations of the page's policy.
func (v *visitor) listen(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		v.complaints = append(v.complaints, exceptionText(event.ExceptionDetails))
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !strings.HasPrefix(url, v.only) && !strings.HasPrefix(url, "data:") { // the browser's own icons
			v.complaints = append(v.complaints, "a request to "+url)
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
			v.complaints = append(v.complaints, event.Entry.Text)
		}
	}
}

func exceptionText(details *runtime.ExceptionDetails) string {
	if details.Exception != nil && details.Exception.Description != "" {
		return details.Exception.Description
	}
	return details.Text
}

func (v *visitor) checkComplaints() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, complaint := range v.complaints {
		v.t.Errorf("the browser complains: %s", complaint)
	}
}

func (v *visitor) run(actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		v.screenshot("failed")
		v.t.Fatal(err)
	}
}

// tryOut evaluates an expression once, even if the page's own scripts are disabled. It waits for a promise.
// It fails if the page is loaded again in the meantime.
func tryOut[T any](v *visitor, expression string, within time.Duration) (T, error) {
	ctx, cancel := context.WithTimeout(v.ctx, within)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// evaluate evaluates an expression on a page that may be loaded again.
func evaluate[T any](v *visitor, expression string) T {
	v.t.Helper()
	for deadline := time.Now().Add(patience); ; pause() {
		value, err := tryOut[T](v, expression, patience)
		if err == nil {
			return value
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// see waits until an element has the given text.
func (v *visitor) see(selector, text string) {
	v.t.Helper()
	got := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause() {
		shown, err := tryOut[string](v, `(document.querySelector(`+strconv.Quote(selector)+`) || {textContent: ""}).textContent`, 5*time.Second)
		if err == nil {
			got = shown
		}
		if err == nil && got == text {
			return
		}
	}
	v.screenshot("failed")
	v.t.Fatalf("%s shows %q; want %q", selector, got, text)
}

// await waits until an expression is true.
func (v *visitor) await(expression string) {
	v.t.Helper()
	if !v.becomes(expression, patience) {
		v.screenshot("failed")
		v.t.Fatalf("not %s", expression)
	}
}

// becomes reports whether an expression is true within a time.
func (v *visitor) becomes(expression string, within time.Duration) bool {
	for deadline := time.Now().Add(within); ; pause() {
		if yes, err := tryOut[bool](v, expression, 5*time.Second); err == nil && yes {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// act does actions one after another until an expression is true: a busy browser may lose a key or a click.
func (v *visitor) act(until string, actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(v.ctx, 5*time.Second)
		_ = chromedp.Do(ctx, actions...) // the page may have gone
		cancel()
		if v.becomes(until, 5*time.Second) {
			return
		}
	}
	v.screenshot("failed")
	v.t.Fatalf("not %s, whatever is done", until)
}

// enter is Enter on an element.
func enter(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(selector), kb.Enter)
}

// pause waits between two polls of another process.
func pause() { <-time.After(50 * time.Millisecond) }

// screenshot saves the whole page, if SLUICE_SCREENSHOTS is set.
func (v *visitor) screenshot(name string) {
	dir := os.Getenv("SLUICE_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	beyond := true
	picture, err := chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) ([]byte, error) {
		result, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
		return result.Data, err
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, v.look.String()+"-"+name+".png"), picture, 0o600)
	}
	if err != nil {
		v.t.Errorf("screenshot: %v", err)
	}
}

// fits checks that nothing is wider than the screen, down to 320 pixels.
func (v *visitor) fits() {
	v.t.Helper()
	for _, width := range []int64{320, v.look.width} {
		v.run(v.screen(width))
		if got := evaluate[int64](v, `document.documentElement.scrollWidth`); got > width {
			v.t.Errorf("%s is %d pixels wide on a screen of %d", evaluate[string](v, "location.pathname"), got, width)
		}
	}
}

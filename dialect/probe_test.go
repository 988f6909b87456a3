package dialect_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

func TestAProbeTellsWhetherTheKeyIsHonoured(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		if p.unkeyed {
			return
		}
		b := p.bench(t, nil)
		honoured, err := dialect.Probe(t.Context(), p.preset, b.api.Transport(), b.probeRequest)
		require.NoError(t, err)
		require.True(t, honoured)

		b.profile = mockserver.Mute()
		mute := b.bench(t, nil)
		honoured, err = dialect.Probe(t.Context(), p.preset, mute.api.Transport(), mute.probeRequest)
		require.NoError(t, err)
		require.False(t, honoured)
		require.Equal(t, 2, mute.api.Effects("o"), "nothing more to learn, and sent all the same")
	})
}

func (b *bench) probeRequest(ctx context.Context) (*http.Request, error) {
	req := b.request(ctx, "o")
	req.Header.Set("Authorization", "Bearer sandbox")
	return req, nil
}

func TestAProbeThatCantTellSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alike := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"ok":true}`) })
		b := provider{preset: dialect.Standard(), profile: mockserver.Mute(), path: "/pay"}.bench(t, &mockserver.Config{Handler: alike})
		_, err := dialect.Probe(t.Context(), b.preset, b.api.Transport(), b.probeRequest)
		require.ErrorContains(t, err, "alike")

		b.api.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 403})
		_, err = dialect.Probe(t.Context(), b.preset, b.api.Transport(), b.probeRequest)
		require.ErrorContains(t, err, "403")

		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		_, err = dialect.Probe(t.Context(), b.preset, b.api.Transport(), b.probeRequest)
		require.ErrorIs(t, err, idem.ErrExhausted)
	})
}

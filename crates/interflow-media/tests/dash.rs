//! Manifests: each addressing mode, each inherited attribute, live and static, and the playlists generated from them.

use interflow_media::dash::model::{self, DashManifest, DashMediaKind};
use interflow_media::dash::segments::{self, DashSegment};
use interflow_media::dash::to_hls::{self, DashTrack, HlsOptions, PlaylistHeader, PlaylistPeriod, UrlKind};
use interflow_media::dash::{to_mpd, xml};
use interflow_media::hls::variant_filter::VariantChoice;
use interflow_media::relay::BaseUrl;
use proptest::prelude::*;

fn read(text: &str) -> DashManifest {
    let root = xml::read(text.as_bytes()).unwrap();
    model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap()
}

/// The segments of the first representation of each period, addresses resolved.
fn listed(text: &str, now: f64) -> Vec<Vec<(u64, f64, f64, String)>> {
    let manifest = read(text);
    let of = |s: DashSegment, base: &str| {
        (s.number, s.start, s.duration, BaseUrl::parse(base).unwrap().resolve(s.address.as_deref().unwrap_or_default()))
    };
    let one = |p: &model::DashPeriod| {
        let own = &p.sets[0].representations[0];
        segments::list(own, p, &manifest, now).unwrap().into_iter().map(|s| of(s, &own.bases[0])).collect()
    };
    manifest.periods.iter().map(one).collect()
}

fn vod(duration: &str, inside: &str) -> String {
    format!(
        "<MPD type='static' mediaPresentationDuration='{duration}'><Period><AdaptationSet mimeType='video/mp4'>{inside}</AdaptationSet></Period></MPD>"
    )
}

fn addresses(text: &str) -> Vec<String> {
    listed(text, 0.0).remove(0).into_iter().map(|(.., a)| a.replace("http://o.test/d/", "")).collect()
}

#[test]
fn templates_and_timelines_yield_segment_urls() {
    let template = |attributes: &str, inside: &str| {
        vod(
            "PT9S",
            &format!(
                "<Representation id='v' bandwidth='5'><SegmentTemplate {attributes}>{inside}</SegmentTemplate></Representation>"
            ),
        )
    };
    for (text, expected) in [
        (template("media='$Number%05d$.m4s' duration='4'", ""), vec!["00001.m4s", "00002.m4s", "00003.m4s"]),
        (template("media='$Number$' duration='4' startNumber='0' endNumber='1'", ""), vec!["0", "1"]),
        (
            template(
                "media='$Time$.m4s' timescale='10'",
                "<SegmentTimeline><S t='0' d='40' r='1'/><S d='10'/></SegmentTimeline>",
            ),
            vec!["0.m4s", "40.m4s", "80.m4s"],
        ),
        (
            template(
                "media='$Time%04d$' timescale='10'",
                "<SegmentTimeline><S t='0' d='30' r='-1'/></SegmentTimeline>",
            ),
            vec!["0000", "0030", "0060"],
        ),
        (
            template("media='$Time$'", "<SegmentTimeline><S t='0' d='2' r='-1'/><S t='6' d='3'/></SegmentTimeline>"),
            vec!["0", "2", "4", "6"],
        ),
        (template("media='$RepresentationID$_$Bandwidth%03d$$$$Number$' duration='9'", ""), vec!["v_005$1"]),
        (
            template("media='$Number$-$SubNumber$'", "<SegmentTimeline><S t='0' d='4' k='2' r='1'/></SegmentTimeline>"),
            vec!["1-1", "1-2", "2-1", "2-2"],
        ),
        (
            template(
                "media='$Time$' presentationTimeOffset='100'",
                "<SegmentTimeline><S t='96' d='4' r='4'/></SegmentTimeline>",
            ),
            vec!["100", "104", "108"],
        ),
    ] {
        assert_eq!(addresses(&text), expected, "{text}");
    }
}

#[test]
fn gaps_of_a_timeline_keep_their_time() {
    let text = vod(
        "PT20S",
        "<Representation><SegmentTemplate media='$Time$'><SegmentTimeline><S t='0' d='4'/><S t='12' d='4'/></SegmentTimeline></SegmentTemplate></Representation>",
    );
    let times: Vec<_> = listed(&text, 0.0)[0].iter().map(|(n, s, ..)| (*n, *s)).collect();
    assert_eq!(times, [(1, 0.0), (2, 12.0)]);
}

#[test]
fn addressing_is_inherited_from_every_level() {
    let text = "<MPD mediaPresentationDuration='PT8S'><BaseURL>http://cdn.test/a/</BaseURL><Period>\
        <SegmentTemplate duration='4' media='$Number$.m4s'/><BaseURL>p/</BaseURL><AdaptationSet mimeType='video/mp4'><BaseURL>s/</BaseURL>\
        <SegmentTemplate startNumber='7'/><Representation id='x'><BaseURL>r/</BaseURL></Representation></AdaptationSet></Period></MPD>";
    let all: Vec<_> = listed(text, 0.0).remove(0).into_iter().map(|(.., a)| a).collect();
    assert_eq!(all, ["http://cdn.test/a/p/s/r/7.m4s", "http://cdn.test/a/p/s/r/8.m4s"]);
}

#[test]
fn alternative_base_urls_are_all_kept() {
    let text = vod(
        "PT4S",
        "<BaseURL>http://one.test/</BaseURL><BaseURL>//two.test/x/</BaseURL><Representation><SegmentTemplate media='m' duration='4'/></Representation>",
    );
    assert_eq!(read(&text).periods[0].sets[0].representations[0].bases, ["http://one.test/", "http://two.test/x/"]);
}

#[test]
fn segment_lists_have_urls_ranges_and_numbers() {
    let text = vod(
        "PT8S",
        "<Representation><BaseURL>x/</BaseURL><SegmentList duration='4' startNumber='5'><Initialization sourceURL='i.mp4' range='0-9'/>\
         <SegmentURL media='1.m4s'/><SegmentURL media='2.m4s' mediaRange='5-9'/></SegmentList></Representation>",
    );
    let manifest = read(&text);
    let own = &manifest.periods[0].sets[0].representations[0];
    let all = segments::list(own, &manifest.periods[0], &manifest, 0.0).unwrap();
    let seen: Vec<_> = all.iter().map(|s| (s.number, s.address.as_deref(), s.range)).collect();
    assert_eq!(seen, [(5, Some("1.m4s"), None), (6, Some("2.m4s"), Some((5, 9)))]);
    assert_eq!(own.addressing.init.range, Some((0, 9)));
}

fn live(attributes: &str, template: &str) -> String {
    format!(
        "<MPD type='dynamic' availabilityStartTime='1970-01-01T00:16:40' {attributes}><Period id='a' start='PT0S'>\
         <AdaptationSet contentType='video'><SegmentTemplate media='$Number$' duration='4' {template}/><Representation id='v'/></AdaptationSet></Period></MPD>"
    )
}

#[test]
fn live_segments_are_listed_when_complete_and_inside_the_window() {
    for (attributes, template, now, numbers) in [
        ("", "", 1000.0, 0..0),
        ("", "", 1003.9, 0..0),
        ("", "", 1004.0, 1..2),
        ("", "", 1011.9, 1..3),
        ("timeShiftBufferDepth='PT8S'", "startNumber='0'", 1021.0, 3..5),
        ("", "availabilityTimeOffset='3'", 1005.0, 1..3),
        ("timeShiftBufferDepth='PT4S'", "availabilityTimeOffset='INF'", 1005.0, 1..3),
        ("", "endNumber='1'", 1090.0, 1..2),
    ] {
        let found: Vec<u64> = listed(&live(attributes, template), now)[0].iter().map(|(n, ..)| *n).collect();
        assert_eq!(found, numbers.collect::<Vec<_>>(), "{attributes} {template} {now}");
    }
}

#[test]
fn open_ended_live_run_stops_at_the_last_complete_segment() {
    let text = "<MPD type='dynamic' availabilityStartTime='1970-01-01T00:00:00Z'><Period start='PT10S'><AdaptationSet contentType='audio'>\
        <SegmentTemplate media='$Time$'><SegmentTimeline><S t='0' d='4' r='-1'/></SegmentTimeline></SegmentTemplate><Representation/></AdaptationSet></Period></MPD>";
    assert_eq!(listed(text, 21.0)[0].len(), 2);
}

const MULTI: &str = "<MPD mediaPresentationDuration='PT14S'><Period id='1' duration='PT8S'><AdaptationSet id='v' contentType='video'>\
    <SegmentTemplate media='a$Number$' duration='4' initialization='a.mp4'/><Representation id='x' bandwidth='9'/></AdaptationSet></Period>\
    <Period id='2'><AdaptationSet contentType='video'><SegmentTemplate media='b$Number$' duration='4' initialization='b.mp4'/>\
    <Representation id='y' bandwidth='2'/><Representation id='z' bandwidth='8'/></AdaptationSet></Period></MPD>";

fn media_text(manifest: &DashManifest, profile: &str, now: f64, frame: PlaylistHeader) -> String {
    let parts: Vec<PlaylistPeriod<'_>> = manifest
        .periods
        .iter()
        .filter_map(|period| {
            let track = to_hls::find(period, profile, Some(DashMediaKind::Video), "")?;
            let segments = segments::list(track.own, period, manifest, now).unwrap();
            Some(PlaylistPeriod { period, track, segments, init: None })
        })
        .collect();
    to_hls::media(manifest, &parts, frame, |wanted| match wanted {
        UrlKind::Init(part) => part.track.own.addressing.init.address.clone(),
        UrlKind::Segment(part, segment) => Some(format!("{}:{}", part.track.own.id, segment.address.clone()?)),
    })
    .unwrap()
}

#[test]
fn consecutive_periods_are_separated_by_a_discontinuity() {
    let text = media_text(&read(MULTI), "v_x_9", 0.0, PlaylistHeader::default());
    assert_eq!(
        text,
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-MAP:URI=\"a.mp4\"\n#EXTINF:4.000000,\nx:a1\n#EXTINF:4.000000,\nx:a2\n#EXT-X-DISCONTINUITY\n\
         #EXT-X-MAP:URI=\"b.mp4\"\n#EXTINF:4.000000,\nz:b1\n#EXTINF:2.000000,\nz:b2\n#EXT-X-ENDLIST\n"
    );
}

#[test]
fn live_playlists_have_program_date_time_and_no_end() {
    let manifest = read(&live("suggestedPresentationDelay='PT12S'", "startNumber='10'"));
    let frame =
        PlaylistHeader { sequence: 10, discontinuities: 2, start: manifest.delay.map(|d| -d), ts: false, most: None };
    let text = media_text(&manifest, "n0_v_0", 1009.0, frame);
    for says in [
        "#EXT-X-MEDIA-SEQUENCE:10\n",
        "#EXT-X-DISCONTINUITY-SEQUENCE:2\n",
        "#EXT-X-START:TIME-OFFSET=-12,PRECISE=YES\n",
        "#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:16:40.000Z\n#EXTINF:4.000000,\nv:10\n",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    assert!(!text.contains("ENDLIST") && !text.contains("PLAYLIST-TYPE"));
}

const RICH: &str = "<MPD mediaPresentationDuration='PT8S'><Period><SegmentTemplate media='$Number$' duration='4'/>\
    <AdaptationSet contentType='video' codecs='avc1.64001f' frameRate='30000/1001'>\
      <Representation id='lo' bandwidth='1000' width='640' height='360'/><Representation id='hi' bandwidth='5000' width='1920' height='1080'/></AdaptationSet>\
    <AdaptationSet contentType='video'><EssentialProperty schemeIdUri='http://dashif.org/guidelines/trickmode' value='1'/>\
      <Representation id='trick' bandwidth='100' width='640' height='360' codecs='avc1.64001f'/></AdaptationSet>\
    <AdaptationSet mimeType='audio/mp4' lang='de' codecs='mp4a.40.2'><Label>Deutsch \"neu\"</Label>\
      <AudioChannelConfiguration schemeIdUri='urn:mpeg:dash:23003:3:audio_channel_configuration:2011' value='2'/><Representation id='de' bandwidth='128'/></AdaptationSet>\
    <AdaptationSet mimeType='audio/mp4' lang='en' codecs='mp4a.40.2'><Role schemeIdUri='r' value='main'/>\
      <AudioChannelConfiguration schemeIdUri='urn:mpeg:dash:23003:3:audio_channel_configuration:2011' value='2'/><Representation id='en' bandwidth='96'/></AdaptationSet>\
    <AdaptationSet mimeType='audio/mp4' lang='en' codecs='ec-3'>\
      <AudioChannelConfiguration schemeIdUri='tag:dolby.com,2014:dash:audio_channel_configuration:2011' value='F801'/><Representation id='ec' bandwidth='384'/></AdaptationSet>\
    <AdaptationSet mimeType='text/vtt' lang='en'><Representation id='vtt' bandwidth='1'><BaseURL>s.vtt</BaseURL></Representation></AdaptationSet>\
    <AdaptationSet contentType='text' lang='fr' codecs='stpp'><Role schemeIdUri='r' value='forced-subtitle'/><Representation id='stpp' bandwidth='1' mimeType='application/mp4'/></AdaptationSet>\
    <AdaptationSet mimeType='image/jpeg'><Representation id='th' bandwidth='20' width='1000' height='500'>\
      <EssentialProperty schemeIdUri='http://dashif.org/guidelines/thumbnail_tile' value='10x5'/></Representation></AdaptationSet></Period></MPD>";

fn master(options: &HlsOptions) -> String {
    let manifest = read(RICH);
    to_hls::master(to_hls::main_period(&manifest).unwrap(), options, |t: DashTrack<'_>| t.own.id.clone()).unwrap()
}

#[test]
fn multivariant_playlist_lists_every_adaptation_set() {
    let text = master(&HlsOptions { mp4_text: true, ..HlsOptions::default() });
    for says in [
        "TYPE=AUDIO,GROUP-ID=\"audio-mp4a-2\",NAME=\"Deutsch 'neu'\",LANGUAGE=\"de\",DEFAULT=NO,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"de\"",
        "TYPE=AUDIO,GROUP-ID=\"audio-mp4a-2\",NAME=\"en\",LANGUAGE=\"en\",DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"en\"",
        "TYPE=AUDIO,GROUP-ID=\"audio-ec-3-6\",NAME=\"en\",LANGUAGE=\"en\",DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"6\",URI=\"ec\"",
        "TYPE=SUBTITLES,GROUP-ID=\"subs\",NAME=\"en\",LANGUAGE=\"en\",DEFAULT=NO,AUTOSELECT=YES,URI=\"vtt\"",
        "NAME=\"fr (forced-subtitle)\",LANGUAGE=\"fr\",DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI=\"stpp\"",
        "#EXT-X-STREAM-INF:BANDWIDTH=5128,CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1920x1080,FRAME-RATE=29.970,AUDIO=\"audio-mp4a-2\",SUBTITLES=\"subs\"\nhi\n",
        "#EXT-X-STREAM-INF:BANDWIDTH=1384,CODECS=\"avc1.64001f,ec-3\",RESOLUTION=640x360,FRAME-RATE=29.970,AUDIO=\"audio-ec-3-6\",SUBTITLES=\"subs\"\nlo\n",
        "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=100,CODECS=\"avc1.64001f\",RESOLUTION=640x360,URI=\"trick\"",
        "#EXT-X-IMAGE-STREAM-INF:BANDWIDTH=20,CODECS=\"jpeg\",RESOLUTION=1000x500,URI=\"th\"",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
}

#[test]
fn subtitles_in_mp4_are_listed_only_if_they_are_asked_for() {
    let text = master(&HlsOptions::default());
    assert!(text.contains("URI=\"vtt\"") && !text.contains("stpp"), "{text}");
}

#[test]
fn options_select_heights_and_languages() {
    let text = master(&HlsOptions {
        height: Some(VariantChoice::Height(720)),
        language: Some("de".into()),
        ..HlsOptions::default()
    });
    assert!(
        text.contains("\nlo\n")
            && !text.contains("\nhi\n")
            && text.contains("URI=\"de\"")
            && !text.contains("URI=\"en\""),
        "{text}"
    );
    let unknown = master(&HlsOptions { language: Some("xx".into()), ..HlsOptions::default() });
    assert!(unknown.contains("URI=\"de\"") && unknown.contains("URI=\"en\""));
}

#[test]
fn audio_only_manifest_yields_a_variant() {
    let manifest = read(
        "<MPD mediaPresentationDuration='PT4S'><Period><AdaptationSet mimeType='audio/mp4' codecs='mp4a.40.2'><SegmentTemplate media='$Number$' duration='4'/><Representation id='a' bandwidth='64'/></AdaptationSet></Period></MPD>",
    );
    let text = to_hls::master(&manifest.periods[0], &HlsOptions::default(), |t| t.own.id.clone()).unwrap();
    assert!(text.contains("#EXT-X-STREAM-INF:BANDWIDTH=64,CODECS=\"mp4a.40.2\",AUDIO=\"audio-mp4a-x\"\na\n"), "{text}");
}

#[test]
fn thumbnail_and_trick_play_tracks_are_marked() {
    let manifest = read(RICH);
    let period = &manifest.periods[0];
    let text = |id: &str| {
        let track = to_hls::tracks(period).find(|t| t.own.id == id).unwrap();
        let segments = segments::list(track.own, period, &manifest, 0.0).unwrap();
        to_hls::media(
            &manifest,
            &[PlaylistPeriod { period, track, segments, init: None }],
            PlaylistHeader::default(),
            |w| match w {
                UrlKind::Segment(_, s) => s.address.clone(),
                UrlKind::Init(_) => None,
            },
        )
        .unwrap()
    };
    assert!(
        text("th").contains("#EXT-X-IMAGES-ONLY\n#EXT-X-TILES:RESOLUTION=100x100,LAYOUT=10x5,DURATION=0.080\n"),
        "{}",
        text("th")
    );
    assert!(text("trick").contains("#EXT-X-I-FRAMES-ONLY\n"));
}

#[test]
fn media_kind_is_detected_from_any_attribute() {
    for (attributes, media) in [
        ("contentType='video'", Some(DashMediaKind::Video)),
        ("mimeType='audio/mp4'", Some(DashMediaKind::Audio)),
        ("codecs='hev1.1.6'", Some(DashMediaKind::Video)),
        ("codecs='av01.0.4'", Some(DashMediaKind::Video)),
        ("codecs='dvh1.05'", Some(DashMediaKind::Video)),
        ("codecs='opus'", Some(DashMediaKind::Audio)),
        ("mimeType='application/mp4' codecs='wvtt'", Some(DashMediaKind::Text)),
        ("mimeType='application/ttml+xml'", Some(DashMediaKind::Text)),
        ("width='1'", Some(DashMediaKind::Video)),
        ("mimeType='application/octet-stream'", Some(DashMediaKind::Other)),
    ] {
        let text = format!("<MPD><Period><AdaptationSet {attributes}><Representation/></AdaptationSet></Period></MPD>");
        assert_eq!(read(&text).periods[0].sets.first().map(|s| s.media), media, "{attributes}");
    }
}

#[test]
fn external_references_are_refused() {
    let period = |inside: &str| format!("<MPD xmlns:xlink='x'>{inside}</MPD>");
    let zero = "<Period xlink:href='urn:mpeg:dash:resolve-to-zero:2013'/><Period/>";
    assert_eq!(read(&period(zero)).periods.len(), 1);
    let hidden = "<MPD><Period><SegmentTimeline><!DOCTYPE a></SegmentTimeline></Period></MPD>";
    assert!(xml::read(hidden.as_bytes()).is_err(), "a document type hides nowhere");
    for bad in [period("<Period xlink:href='http://10.0.0.1/'/>"), "<MPD/>".into(), "<html/>".into()] {
        let root = xml::read(bad.as_bytes()).unwrap();
        assert!(model::read(&root, &BaseUrl::parse("http://o.test/").unwrap()).is_err(), "{bad}");
    }
}

#[test]
fn rewritten_manifest_differs_only_in_urls() {
    let text = "<MPD xmlns='urn:mpeg:dash:schema:mpd:2011' profiles='p' mediaPresentationDuration='PT8S'><BaseURL>http://cdn.test/</BaseURL>\
        <Location>http://o.test/other</Location><PatchLocation>x</PatchLocation><Period><EventStream schemeIdUri='e'><Event id='1'/></EventStream>\
        <SegmentTemplate timescale='10' media='$RepresentationID$/$Time$.m4s' initialization='$RepresentationID$/i.mp4'><SegmentTimeline><S t='0' d='40' r='1'/></SegmentTimeline></SegmentTemplate>\
        <AdaptationSet id='v' mimeType='video/mp4'><ContentProtection schemeIdUri='c'/><Representation id='a' bandwidth='5'/></AdaptationSet>\
        <AdaptationSet mimeType='audio/mp4'><Representation id='b'><BaseURL>b.mp4</BaseURL><SegmentBase indexRange='10-20'><Initialization range='0-9'/></SegmentBase></Representation></AdaptationSet>\
        </Period></MPD>";
    let mut root = xml::read(text.as_bytes()).unwrap();
    let manifest = model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap();
    to_mpd::rewrite(&mut root, &manifest, "http://us/m.mpd", true, u64::MAX, &mut |wanted| match wanted {
        to_mpd::ManifestUrlKind::Init(addresses, _) => format!("http://us/i?{}", addresses[0]),
        to_mpd::ManifestUrlKind::Segment { addresses, pattern, .. } => {
            format!("http://us/s?{}&p={pattern}", addresses[0])
        }
        other => unreachable!("{other:?}"),
    })
    .unwrap();
    let mut out = String::new();
    root.write(&mut out);
    for says in [
        "media=\"http://us/s?http://cdn.test/a/$Time$.m4s&amp;p=true&amp;_t=$Time$\"",
        "initialization=\"http://us/i?http://cdn.test/a/i.mp4\"",
        "<SegmentTimeline><S t='0' d='40' r='1'/></SegmentTimeline>",
        "<BaseURL>http://us/s?http://cdn.test/b.mp4&amp;p=false</BaseURL>",
        "<SegmentBase indexRange=\"10-20\" timescale=\"10\"><Initialization range=\"0-9\"/></SegmentBase>",
        "<Location>http://us/m.mpd</Location>",
        "<EventStream schemeIdUri=\"e\"><Event id=\"1\"/></EventStream>",
        "profiles=\"p\"",
    ] {
        assert!(out.contains(says), "{says}\n{out}");
    }
    assert!(!out.contains("ContentProtection") && !out.contains("PatchLocation") && xml::read(out.as_bytes()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn arbitrary_manifests_never_panic(
        attributes in prop::collection::vec(("(duration|timescale|startNumber|endNumber|presentationTimeOffset|availabilityTimeOffset)", "-?[0-9]{0,20}|INF|x"), 0..5),
        runs in prop::collection::vec(("[0-9]{0,20}", "[0-9]{1,20}", "-?[0-9]{1,6}"), 0..4),
        live in any::<bool>(),
        now in -1e12..1e12_f64,
    ) {
        let attributes: String = attributes.iter().map(|(n, v)| format!(" {n}='{v}'")).collect();
        let runs: String = runs.iter().map(|(t, d, r)| format!("<S t='{t}' d='{d}' r='{r}'/>")).collect();
        let kind = if live { "dynamic" } else { "static" };
        let timeline = if runs.is_empty() { String::new() } else { format!("<SegmentTimeline>{runs}</SegmentTimeline>") };
        let text = format!("<MPD type='{kind}' timeShiftBufferDepth='PT60S' mediaPresentationDuration='PT3600S'><Period><AdaptationSet contentType='video'><SegmentTemplate media='$Number$$Time$'{attributes}>{timeline}</SegmentTemplate><Representation/></AdaptationSet></Period></MPD>");
        if let Ok(root) = xml::read(text.as_bytes())
            && let Ok(manifest) = model::read(&root, &BaseUrl::parse("http://o.test/").unwrap())
        {
            let period = &manifest.periods[0];
            let _ = segments::list(&period.sets[0].representations[0], period, &manifest, now);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_xml_reader(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = xml::read(&text);
    }
}

#[test]
fn expanded_template_size_is_bounded() {
    let id = "i".repeat(2000);
    let media = "$RepresentationID$".repeat(2000);
    let text = vod(
        "PT100000S",
        &format!(
            "<SegmentTemplate timescale='1' media='{media}'><SegmentTimeline><S t='0' d='1' r='100000'/></SegmentTimeline></SegmentTemplate><Representation id='{id}' bandwidth='1'/>"
        ),
    );
    let manifest = read(&text);
    let period = &manifest.periods[0];
    let refused = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap_err().to_string();
    assert!(refused.contains("67108864 bytes"), "{refused}");
}

#[test]
fn every_representation_counts_with_its_inherited_elements() {
    let of = |count: usize, set: &str| {
        let own: String = (0..count).map(|n| format!("<Representation id='{n}' bandwidth='{n}'/>")).collect();
        let inherited = "<SupplementalProperty schemeIdUri='x'/><ContentProtection schemeIdUri='c'/>";
        let text = format!(
            "<MPD mediaPresentationDuration='PT8S'><Period><AdaptationSet mimeType='video/mp4' {set}>{own}{inherited}\
             <SegmentTemplate media='$Number$' duration='4'/></AdaptationSet></Period></MPD>"
        );
        let root = xml::read(text.as_bytes()).unwrap();
        model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap())
    };
    let all = of(20_000, "").unwrap();
    assert_eq!(all.periods[0].sets[0].representations.len(), 20_000);
    assert!(all.periods[0].sets[0].representations.iter().all(|r| r.is_protected));
    let master = to_hls::master(&all.periods[0], &HlsOptions::default(), |t| t.own.id.clone()).unwrap_err().to_string();
    assert!(master.contains("10000 combinations"), "{master}");
    assert!(of(20_001, "").unwrap_err().to_string().contains("20000 representations"));
    let codecs = format!("codecs='{}'", "x".repeat(100_000));
    assert!(of(1000, &codecs).unwrap_err().to_string().contains("67108864 bytes"));
    let elements = format!("<MPD>{}</MPD>", "<a/>".repeat(200_001));
    assert!(xml::read(elements.as_bytes()).unwrap_err().to_string().contains("200000 elements"));
}

#[test]
fn audio_video_combinations_are_bounded() {
    let set = |kind: &str, count: usize| -> String {
        let one = |n: usize| {
            format!(
                "<Representation id='{n}' bandwidth='1' codecs='{kind}{n}'><AudioChannelConfiguration schemeIdUri='c' value='{}'/></Representation>",
                n + 1
            )
        };
        let own: String = (0..count).map(one).collect();
        format!("<AdaptationSet contentType='{kind}'>{own}</AdaptationSet>")
    };
    let text = format!(
        "<MPD mediaPresentationDuration='PT8S'><Period>{}{}</Period></MPD>",
        set("video", 200),
        set("audio", 200)
    );
    let manifest = read(&text);
    let refused = to_hls::master(&manifest.periods[0], &HlsOptions::default(), |t| t.own.id.clone()).unwrap_err();
    assert!(refused.to_string().contains("combinations"), "{refused}");
    let most = Some(1000);
    let small = read(RICH);
    let refused =
        to_hls::master(&small.periods[0], &HlsOptions { most, ..HlsOptions::default() }, |t| t.own.id.clone());
    assert!(refused.unwrap_err().to_string().contains("media.rewritten_bytes"));
}

#[test]
fn webm_is_not_listed_in_hls() {
    let set = |kind: &str, container: &str| {
        format!(
            "<AdaptationSet mimeType='{kind}/{container}' codecs='x'><SegmentTemplate media='$Number$' duration='4'/><Representation id='{kind}-{container}' bandwidth='9'/></AdaptationSet>"
        )
    };
    let of = |sets: &[String]| {
        read(&format!("<MPD mediaPresentationDuration='PT8S'><Period>{}</Period></MPD>", sets.concat()))
    };
    let both = of(&[set("video", "webm"), set("video", "mp4"), set("audio", "webm"), set("audio", "mp4")]);
    let text = to_hls::master(&both.periods[0], &HlsOptions::default(), |t| t.own.id.clone()).unwrap();
    assert!(text.contains("\nvideo-mp4\n") && text.contains("URI=\"audio-mp4\"") && !text.contains("webm"), "{text}");
    let alone = of(&[set("video", "webm")]);
    let refused = to_hls::master(&alone.periods[0], &HlsOptions::default(), |t| t.own.id.clone()).unwrap_err();
    assert!(refused.to_string().contains("WebM"), "{refused}");
}

#[test]
fn fractional_numbers_are_parsed_and_the_last_segment_ends_with_its_period() {
    let of = |template: &str| {
        let own =
            format!("<Representation id='v'><SegmentTemplate media='$Number$-$Time$' {template}</Representation>");
        listed(&vod("PT10S", &own), 0.0).remove(0)
    };
    let found = of("timescale='10.0' duration='38.5'/>");
    let begins: Vec<f64> = found.iter().map(|(_, start, ..)| *start).collect();
    assert_eq!(begins, [0.0, 3.85, 7.7]);
    let last = found.last().unwrap();
    assert!((last.2 - 2.3).abs() < 1e-9 && last.3.ends_with("3-77"), "{last:?}");
    let found = of("timescale='10'><SegmentTimeline><S t='0.0' d='40.0' r='2'/></SegmentTimeline></SegmentTemplate>");
    assert_eq!(found.iter().map(|s| s.2).collect::<Vec<_>>(), [4.0, 4.0, 2.0]);
}

#[test]
fn oversized_segment_list_is_an_error_instead_of_truncated() {
    for template in [
        "<SegmentTemplate media='$Number$' duration='1'/>",
        "<SegmentTemplate media='$Number$'><SegmentTimeline><S t='0' d='1' r='200000'/></SegmentTimeline></SegmentTemplate>",
    ] {
        let manifest = read(&vod("PT200001S", &format!("<Representation id='v'>{template}</Representation>")));
        let period = &manifest.periods[0];
        let refused = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap_err();
        assert!(refused.to_string().contains("200000 segments"), "{refused}");
    }
}

#[test]
fn low_latency_and_index_attributes_are_kept() {
    let text = "<MPD type='dynamic' availabilityStartTime='1970-01-01T00:00:00Z'><Period id='1'>\
        <AdaptationSet mimeType='video/mp4'><SegmentTemplate media='$Number$.m4s' duration='2' availabilityTimeOffset='1.5' availabilityTimeComplete='false' pdDelta='3'/><Representation id='v'/></AdaptationSet>\
        <AdaptationSet mimeType='audio/mp4'><Representation id='a'><BaseURL>a.mp4</BaseURL><SegmentBase indexRange='10-20' indexRangeExact='true'><Initialization range='0-9'/><RepresentationIndex range='30-40'/></SegmentBase></Representation></AdaptationSet></Period></MPD>";
    let mut root = xml::read(text.as_bytes()).unwrap();
    let manifest = model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap();
    to_mpd::rewrite(&mut root, &manifest, "http://us/m.mpd", false, u64::MAX, &mut |_| "http://us/x".into()).unwrap();
    let mut out = String::new();
    root.write(&mut out);
    for says in [
        "availabilityTimeComplete=\"false\"",
        "pdDelta=\"3\"",
        "indexRangeExact=\"true\"",
        "<Initialization range=\"0-9\"/><RepresentationIndex range=\"30-40\"/>",
    ] {
        assert!(out.contains(says), "{says}\n{out}");
    }
    let mut root = xml::read(text.as_bytes()).unwrap();
    let refused = to_mpd::rewrite(&mut root, &manifest, "http://us/m.mpd", false, 10, &mut |_| "http://us/x".into());
    assert!(refused.unwrap_err().to_string().contains("media.rewritten_bytes"));
}

#[test]
fn documents_in_another_encoding_are_refused_with_the_remedy() {
    let mpd =
        |encoding: &str| format!("<?xml version='1.0' encoding='{encoding}'?><MPD><BaseURL>r\u{e9}/</BaseURL></MPD>");
    let utf16 = |bytes: fn(u16) -> [u8; 2], mark: &str| {
        format!("{mark}{}", mpd("UTF-16")).encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    let latin1: Vec<u8> = mpd("ISO-8859-1").chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    for (bytes, says) in [
        (utf16(u16::to_le_bytes, "\u{feff}"), "and it is UTF-16"),
        (utf16(u16::to_be_bytes, "\u{feff}"), "and it is UTF-16"),
        (utf16(u16::to_le_bytes, ""), "and it is UTF-16"),
        (utf16(u16::to_be_bytes, ""), "and it is UTF-16"),
        (latin1, "and it is in another encoding"),
        (b"<MPD>\xe9</MPD>".to_vec(), "and it is in another encoding"),
    ] {
        let refused = xml::read(&bytes).err().unwrap().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    assert!(xml::read(format!("\u{feff}{}", mpd("UTF-8")).as_bytes()).is_ok());
}
